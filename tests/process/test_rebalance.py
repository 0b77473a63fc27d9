"""Workers that join and leave while jobs run: all goes on, nothing runs twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.payments import check_totals, owns_something, submit, wait_until, worker

from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def test_workers_join_and_leave_under_load(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit(settings)
    staying = [worker(settings, ledger, "stay", 0)]
    try:
        wait_until(lambda: owns_something(settings), "the first worker owns every partition")
        for _ in range(3):
            staying.append(worker(settings, ledger, "stay", 0))
            wait_until(lambda: ledger.exists() and ledger.read_text().count("\n") > 0, "payments are made")
            leaving = staying.pop(0)
            leaving.send_signal(signal.SIGTERM)
            # One that is still starting has nothing to hand back: the signal just ends it.
            assert leaving.wait(60) in (0, -signal.SIGTERM)
        assert worker(settings, ledger, "never", 0).wait(90) == 0
    finally:
        for process in staying:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    # What the staying one owned may hold an attempt that is to be retried.
    assert worker(settings, ledger, "never", 0).wait(90) == 0
    check_totals(settings, ledger)


def test_two_workers_share_the_partitions(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    workers = [worker(settings, ledger, "stay", 0) for _ in range(2)]
    try:
        wait_until(lambda: owns_something(settings), "the partitions are taken")
        submit(settings)
        wait_until(lambda: ledger.exists() and ledger.read_text().count("\n") == 60, "all payments are made", 90)
    finally:
        for process in workers:
            process.send_signal(signal.SIGTERM)
        ends = [process.wait(60) for process in workers]
    # One that is still starting has nothing to hand back: the signal just ends it.
    assert set(ends) <= {0, -signal.SIGTERM}
    assert worker(settings, ledger, "never", 0).wait(90) == 0
    check_totals(settings, ledger)
