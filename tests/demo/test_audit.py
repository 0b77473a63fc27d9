"""The audit, on a small real run and on the same run with a tampered ledger."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from tests.support.demo_services import Running
from tests.support.shop import Shop

from rewindq.tools.demo.audit import Audit, audit
from rewindq.tools.demo.calls import ENVIRONMENT
from rewindq.tools.demo.fingerprint import fingerprint
from rewindq.tools.demo.ledger import read_ledger
from rewindq.tools.demo.orders import Order, sample, submission, write_submissions
from rewindq.tools.demo.services import GATEWAY, SOCKET, WAREHOUSE, ledger_path
from rewindq.tools.demo.shop import app
from rewindq.tools.demo.suspects import find_suspect

pytestmark = pytest.mark.process


class Done:
    """A run that is over: its orders, its folder and its settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        first = sample()[0]
        # Two orders of one customer that meet, and one of somebody else.
        self.orders = [
            Order(1, "00001", "1997-01-01", 1, Decimal("10.99")),
            Order(2, "00001", "1997-01-01", 2, Decimal("20.00")),
            first._replace(order_id=3),
        ]
        self.shop = Shop(folder, app)
        for order in self.orders:
            line = submission(order)
            self.shop.submit("place_order", line["payload"], order.job_id, key=order.key)  # type: ignore[arg-type]
        self.shop.run(concurrency=8)

    def audit(self, folder: Path | None = None, orders: list[Order] | None = None) -> Audit:
        return audit(orders or self.orders, folder or self.folder, self.shop.deployment.settings)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("done")
    services = Running(folder)
    services.start("--faults", "0")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv(ENVIRONMENT, SOCKET)
        yield Done(folder)
    services.close()


def failed(found: Audit) -> set[str]:
    return {check.name for check in found.checks if not check.ok}


def tampered(done: Done, folder: Path, service: str, lines: list[dict[str, object]]) -> Path:
    for name in (GATEWAY, WAREHOUSE):
        shutil.copy(ledger_path(done.folder, name), ledger_path(folder, name))
    ledger_path(folder, service).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_good_run_adds_up_and_its_wrong_points_lead_to_the_order(done: Done) -> None:
    found = done.audit()
    assert found.ok, found.checks
    assert found.charged == found.amount == found.spent == sum(order.amount for order in done.orders)
    (account,) = found.accounts
    assert (account.customer_id, account.points_due) == ("00001", 30) and account.points in (10, 20)
    suspect = find_suspect(found, done.orders)
    assert suspect is not None and suspect.order.customer_id == "00001"
    assert (suspect.due, suspect.balance_due) == (30, 30) and suspect.points == suspect.balance == account.points
    assert suspect.order.job_id in found.incidents.conflicts & found.incidents.stale_writes
    assert json.loads(json.dumps(found.totals()))["amount_charged"] == str(found.charged)


def test_a_double_charge_is_found(done: Done, tmp_path: Path) -> None:
    lines = read_ledger(ledger_path(done.folder, GATEWAY))
    found = done.audit(tampered(done, tmp_path, GATEWAY, [*lines, lines[0]]))
    assert failed(found) == {
        "every order was charged once",
        "the gateway's ledger has each key once",
        "the gateway's money is the file's",
    }


def test_a_charge_twice_under_two_keys_is_found(done: Done, tmp_path: Path) -> None:
    lines = read_ledger(ledger_path(done.folder, GATEWAY))
    free = {**lines[0], "key": "another", "amount": "0.00"}
    assert failed(done.audit(tampered(done, tmp_path, GATEWAY, [*lines, free]))) == {"every order was charged once"}


def test_a_cent_too_much_is_found(done: Done, tmp_path: Path) -> None:
    lines = read_ledger(ledger_path(done.folder, GATEWAY))
    lines[0]["amount"] = str(Decimal(lines[0]["amount"]) + Decimal("0.01"))
    assert failed(done.audit(tampered(done, tmp_path, GATEWAY, lines))) == {"the gateway's money is the file's"}


def test_a_missing_reservation_is_found(done: Done, tmp_path: Path) -> None:
    lines = read_ledger(ledger_path(done.folder, WAREHOUSE))
    assert failed(done.audit(tampered(done, tmp_path, WAREHOUSE, lines[1:]))) == {"every order was reserved once"}


def test_an_order_that_never_ran_is_found(done: Done) -> None:
    more = [*done.orders, Order(9, "00009", "1997-01-01", 1, Decimal("1.00"))]
    assert "every order succeeded once" in failed(done.audit(orders=more))
    assert "the accounts' money is the file's" in failed(done.audit(orders=more))


def test_a_fingerprint_tells_any_change_of_production(done: Done, tmp_path: Path) -> None:
    settings = done.shop.deployment.settings
    before = fingerprint(done.folder, settings)
    assert fingerprint(done.folder, settings) == before
    lines = read_ledger(ledger_path(done.folder, GATEWAY))
    assert fingerprint(tampered(done, tmp_path, GATEWAY, lines[1:]), settings) != before
    log, topics = done.shop.deployment.log, done.shop.topics
    (group,) = log.groups(topics.worker_group)
    log.set_offsets(topics.worker_group, {(topics.jobs, 0): 0})
    assert fingerprint(done.folder, settings) != before
    log.set_offsets(topics.worker_group, group.offsets)
    assert fingerprint(done.folder, settings) == before
    done.shop.append(topics.investigation, b"a record more", partition=0)
    assert fingerprint(done.folder, settings) != before


def test_as_a_program_it_says_what_it_found_and_ends_with_a_code(done: Done, tmp_path: Path) -> None:
    orders = tmp_path / "orders.jsonl"

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rewindq.tools.demo.audit", str(orders), "--dir", str(done.folder)]
        log = ["--log", done.shop.deployment.settings.log]
        return subprocess.run([*command, *log], capture_output=True, text=True, timeout=60, check=False)

    with orders.open("w") as out:
        write_submissions(done.orders, out)
    good = run()
    assert good.returncode == 0 and json.loads(good.stdout)["ok"] is True
    with orders.open("w") as out:
        write_submissions(done.orders[1:], out)
    bad = run()
    assert bad.returncode == 1 and json.loads(bad.stdout)["ok"] is False
