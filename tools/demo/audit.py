"""Did it add up? The file, the gateway's own ledger, the jobs and the accounts, held against each other.

As a program: `python -m rewindq.tools.demo.audit --dir D orders.jsonl [--log URL] [--namespace NAME]`, where D is the
folder of the services' ledgers. Exit code 0 when every check held.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from rewindq.engine.core.state import SUCCEEDED
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.recover import PartitionTopics, Tail
from rewindq.engine.runtime.settings import Settings, SettingsError, load_settings
from rewindq.engine.store.memory import MemoryStore

from .incidents import Incidents
from .ledger import read_ledger
from .orders import Order, read_submissions
from .services import GATEWAY, WAREHOUSE, ledger_path


class Check(NamedTuple):
    """One thing that must hold."""

    name: str
    ok: bool
    detail: str


class Account(NamedTuple):
    """A customer's account as the queue's state has it, beside what the file says."""

    customer_id: str
    points: int
    points_due: int


@dataclass
class Audit:
    """What was found. `accounts` are those whose points are wrong."""

    orders: int
    customers: int
    amount: Decimal
    charged: Decimal
    charges: int
    succeeded: int
    spent: Decimal
    checks: list[Check]
    accounts: list[Account]
    incidents: Incidents

    @property
    def ok(self) -> bool:
        """Whether every check held. Wrong points are the demo's bug, not a check."""
        return all(check.ok for check in self.checks)

    def totals(self) -> dict[str, object]:
        """The figures as JSON; money as text, exact to the cent."""
        return {
            "orders": self.orders,
            "customers": self.customers,
            "succeeded": self.succeeded,
            "charges": self.charges,
            "amount_in_file": str(self.amount),
            "amount_charged": str(self.charged),
            "amount_on_accounts": str(self.spent),
            "customers_with_wrong_points": len(self.accounts),
            "incidents": self.incidents.counts(),
            "checks": [check._asdict() for check in self.checks],
        }


@dataclass
class _Past:
    """What the log's events add up to."""

    statuses: Counter[str] = field(default_factory=Counter)
    data: dict[str, dict[str, object]] = field(default_factory=dict)
    incidents: Incidents = field(default_factory=Incidents)


def audit(orders: Sequence[Order], folder: Path, settings: Settings) -> Audit:
    """Compares the orders with the ledgers in `folder` and with the log. Raises LogUnavailable, NotCreated."""
    past = _read_past(orders, settings)
    charges = read_ledger(ledger_path(folder, GATEWAY))
    reservations = read_ledger(ledger_path(folder, WAREHOUSE))
    amount = sum((order.amount for order in orders), Decimal(0))
    charged = sum((Decimal(entry["amount"]) for entry in charges), Decimal(0))
    spent = sum((Decimal(str(data["spent"])) for data in past.data.values()), Decimal(0))
    succeeded = past.statuses[SUCCEEDED]
    checks = [
        Check("every order succeeded once", succeeded == len(orders), f"{succeeded:,} of {len(orders):,}"),
        _once("every order was charged once", [entry["order_id"] for entry in charges], orders),
        _once("every order was reserved once", [entry["order_id"] for entry in reservations], orders),
        _keys("the gateway's ledger has each key once", [entry["key"] for entry in charges]),
        Check("the gateway's money is the file's", charged == amount, f"{charged:,} of {amount:,} USD"),
        Check("the accounts' money is the file's", spent == amount, f"{spent:,} of {amount:,} USD"),
    ]
    wrong = _wrong_points(orders, past.data)
    return Audit(
        orders=len(orders),
        customers=len({order.customer_id for order in orders}),
        amount=amount,
        charged=charged,
        charges=len(charges),
        succeeded=succeeded,
        spent=spent,
        checks=checks,
        accounts=wrong,
        incidents=past.incidents,
    )


def _read_past(orders: Sequence[Order], settings: Settings) -> _Past:
    past = _Past()
    keys = {order.key for order in orders}
    with Deployment.open(settings) as deployment:
        for partition in range(deployment.partitions):
            topics = deployment.topics
            source = PartitionTopics(topics.lifecycle, topics.domain, partition)
            tail = Tail(deployment.log, deployment.codec, source, MemoryStore(), past.incidents.watch)
            tail.catch_up()
            past.statuses.update(tail.states.counts)
            for key in keys:
                found = tail.states.aggregate(key)
                if found.version:
                    past.data[key] = found.data
    return past


def _once(name: str, order_ids: list[int], orders: Sequence[Order]) -> Check:
    counts = Counter(order_ids)
    twice = sum(1 for count in counts.values() if count > 1)
    never = sum(1 for order in orders if order.order_id not in counts)
    return Check(name, not twice and not never, f"{len(order_ids):,} bookings, {twice} twice, {never} never")


def _keys(name: str, keys: list[str]) -> Check:
    return Check(name, len(set(keys)) == len(keys), f"{len(set(keys)):,} keys in {len(keys):,} lines")


def _wrong_points(orders: Sequence[Order], data: dict[str, dict[str, object]]) -> list[Account]:
    due: defaultdict[str, int] = defaultdict(int)
    for order in orders:
        due[order.customer_id] += order.points
    accounts = [
        Account(customer, int(str(data.get(f"customer:{customer}", {}).get("points", 0))), points)
        for customer, points in sorted(due.items())
    ]
    return [account for account in accounts if account.points != account.points_due]


def main() -> int:
    """Audits what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m rewindq.tools.demo.audit", description=__doc__.split("\n")[0])
    parser.add_argument("orders", type=Path, help="what was submitted, as rewindq.tools.demo.orders writes it")
    parser.add_argument("--dir", type=Path, required=True, help="folder of the services' ledgers")
    parser.add_argument("--log", help="the log's URL")
    parser.add_argument("--namespace", help="the namespace")
    arguments = parser.parse_args()
    try:
        settings = load_settings(log=arguments.log, namespace=arguments.namespace)
        found = audit(list(read_submissions(arguments.orders)), arguments.dir, settings)
    except (OSError, ValueError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"ok": found.ok, **found.totals()}, indent=2))
    return 0 if found.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
