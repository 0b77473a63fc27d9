"""Purchases of the CDNOW file as orders of the shop, and as lines for `rewindq submit --file`.

As a program: `python -m rewindq.tools.demo.orders CSV.gz > orders.jsonl`.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, NamedTuple

SAMPLE = "cdnow_sample.csv.gz"


class Order(NamedTuple):
    """One purchase. `order_id` is its line in the full file, `date` is YYYY-MM-DD, `amount` is in US dollars."""

    order_id: int
    customer_id: str
    date: str
    quantity: int
    amount: Decimal

    @property
    def job_id(self) -> str:
        """The id that its job is submitted under."""
        return f"order-{self.order_id}"

    @property
    def key(self) -> str:
        """The partition key of its job, and the key of the customer's account."""
        return f"customer:{self.customer_id}"

    @property
    def points(self) -> int:
        """Loyalty points that it earns: one for each full dollar."""
        return int(self.amount)


def read_orders(path: Path) -> Iterator[Order]:
    """The orders of a CDNOW csv, gzipped or not, in the file's order. Raises OSError, ValueError naming the line."""
    with _open(path) as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            try:
                yield Order(
                    int(row["line"]),
                    row["customer_id"],
                    row["date"],
                    int(row["quantity"]),
                    Decimal(row["amount_usd"]),
                )
            except (KeyError, TypeError, ValueError, ArithmeticError) as error:
                raise ValueError(f"{path}, line {number}: not a purchase of the CDNOW file: {error!r}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def sample(count: int | None = None) -> list[Order]:
    """The first `count` orders of the sample in this package, in the order in which they were placed."""
    with as_file(files(__package__) / "data" / SAMPLE) as path:
        orders = list(read_orders(path))[:count]
    return sorted(orders, key=lambda order: (order.date, order.order_id))


def submission(order: Order) -> dict[str, object]:
    """An order as one line of `rewindq submit place_order --file`."""
    payload = {**order._asdict(), "amount": str(order.amount)}
    return {"payload": payload, "id": order.job_id, "key": order.key}


def read_submissions(path: Path) -> Iterator[Order]:
    """The orders of a file that `write_submissions` wrote."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            payload = json.loads(line)["payload"]
            yield Order(**{**payload, "amount": Decimal(payload["amount"])})


def write_submissions(orders: Iterable[Order], out: IO[str]) -> int:
    """Writes one JSON line an order; returns how many."""
    count = 0
    for order in orders:
        out.write(json.dumps(submission(order), separators=(",", ":")) + "\n")
        count += 1
    return count


def main() -> int:
    """Converts the csv that is named on the command line to stdout."""
    if len(sys.argv) != 2:
        print("usage: python -m rewindq.tools.demo.orders CSV.gz > orders.jsonl", file=sys.stderr)
        return 2
    try:
        count = write_submissions(read_orders(Path(sys.argv[1])), sys.stdout)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{count:,} orders", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
