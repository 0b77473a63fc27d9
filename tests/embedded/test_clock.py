"""The embedded log's clock: set once for each boot of the machine, the same whatever a process takes for the time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rewindq.engine.log.sqlite import SqliteLog, clock

HOUR_NS = 3_600 * 10**9


@pytest.fixture
def log(tmp_path: Path) -> SqliteLog:
    return SqliteLog(tmp_path / "log.db")


def test_a_wall_clock_that_is_set_or_differs_moves_it_not(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    true_ns, began, before = time.time_ns, time.monotonic(), log.now_us("")
    for off in (-2 * HOUR_NS, 720 * HOUR_NS):
        monkeypatch.setattr(time, "time_ns", lambda off=off: true_ns() + off)
        for handle in (log, SqliteLog(log.path)):
            assert 0 <= handle.now_us("") - before <= (time.monotonic() - began) * 1e6


def test_another_boot_sets_it_by_the_wall_clock(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    before, true_ns = log.now_us(""), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + HOUR_NS)
    monkeypatch.setattr(clock, "boot_id", lambda: "the next one")
    monkeypatch.setattr(clock, "_since_boot", lambda: 5_000_000)
    assert 3_600e6 <= log.now_us("") - before < 3_700e6
