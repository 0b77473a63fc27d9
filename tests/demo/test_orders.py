"""The sample and its conversion to submissions."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from rewindq.tools.demo import orders as o

DATA = Path(o.__file__).parent / "data" / o.SAMPLE


def rows() -> list[dict[str, str]]:
    with gzip.open(DATA, "rt") as lines:
        return list(csv.DictReader(lines))


def test_the_sample_is_whole_and_in_the_order_of_its_dates() -> None:
    taken = o.sample()
    assert len(taken) == len(rows()) == 500
    assert sorted(order.order_id for order in taken) == [int(row["line"]) for row in rows()]
    assert [order.date for order in taken] == sorted(order.date for order in taken)


def test_the_sample_has_customers_who_buy_twice_on_a_day_and_an_order_without_money() -> None:
    taken = o.sample(300)
    days = Counter((order.customer_id, order.date) for order in taken)
    assert sum(count - 1 for count in days.values()) >= 5
    assert any(order.amount == 0 for order in o.sample())


def test_lines_to_submit_hold_the_files_sum_to_the_cent(tmp_path: Path) -> None:
    out = io.StringIO()
    assert o.write_submissions(o.read_orders(DATA), out) == 500
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    total = sum(Decimal(line["payload"]["amount"]) for line in lines)
    assert total == sum(Decimal(row["amount_usd"]) for row in rows())
    assert len({line["id"] for line in lines}) == 500
    assert all(line["key"] == f"customer:{line['payload']['customer_id']}" for line in lines)
    (tmp_path / "orders.jsonl").write_text(out.getvalue())
    assert list(o.read_submissions(tmp_path / "orders.jsonl")) == list(o.read_orders(DATA))


def test_a_file_that_is_no_cdnow_file_is_refused_by_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("line,customer_id,date,quantity,amount_usd\n1,00001,1997-01-01,1,11.77\n2,00002,1997-01-01,x,1.00\n")
    with pytest.raises(ValueError, match=r"bad\.csv, line 3"):
        list(o.read_orders(bad))


def test_points_are_full_dollars() -> None:
    assert o.Order(1, "1", "1997-01-01", 1, Decimal("11.99")).points == 11
