"""A worker killed with SIGKILL at each point of the commit protocol loses nothing and doubles nothing, on both logs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.payments import check_totals, log_dump, owns_something, submit, wait_until, worker

from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.mark.parametrize("point", ["before-append", "after-append", "during-store", "after-store"])
def test_killed_at_each_point_of_the_commit(settings: Settings, tmp_path: Path, point: str) -> None:
    ledger = tmp_path / "ledger"
    submit(settings)
    for turn in (2, 4, 6):
        process = worker(settings, ledger, point, turn)
        assert process.wait(60) in (-signal.SIGKILL, 0)
    assert worker(settings, ledger, "never", 0).wait(60) == 0
    check_totals(settings, ledger)


def test_frozen_owner_that_wakes_after_takeover_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    frozen = worker(settings, ledger, "stay", 0)
    try:
        wait_until(lambda: owns_something(settings), "the first worker owns partitions")
        frozen.send_signal(signal.SIGSTOP)
        submit(settings)
        second = worker(settings, ledger, "never", 0)
        assert second.wait(90) == 0
        before = log_dump(settings)
        frozen.send_signal(signal.SIGCONT)
        frozen.send_signal(signal.SIGTERM)
        frozen.wait(60)
    finally:
        frozen.kill()
        frozen.wait()
    kept = [line for line in log_dump(settings) if line in set(before)]
    assert kept == before
    check_totals(settings, ledger)
