"""Wall clocks of workers may be minutes apart and jump both ways: what waits is neither early, late, twice nor stuck.

Pinned down: delays and retries are told by the log's clock (`engine/runtime/log_time.py`, asked through `Log.now_us`),
by submitters and owners alike; leases count on monotonic clocks; schedules go by a smoothed wall (`core/timeline.py`);
a jump is recorded (`processors/worker/clocks.py`). The same in one process and in virtual time: `worker/test_cron.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.machines import MINUTE, Scene, scene
from tests.support.payments import wait_until
from tests.support.skewed_worker import BACKOFF, TICK
from tests.support.workers import records

from rewindq.engine.core import events as e
from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
HOUR, DAY = 3600.0, 86_400.0
#: How late anything may be, in seconds: a machine's load and takeovers cost some, a clock would cost minutes.
LATE = 20.0


def test_clocks_that_differ_and_jump_move_nothing(settings: Settings, tmp_path: Path) -> None:
    with scene(settings, tmp_path) as it:
        first = it.machine("first", 7 * MINUTE)
        wait_until(lambda: it.count("tick", 2), "the first machine plans")
        began = time.monotonic()
        it.delay(1.0, 2.0, 3.0, 4.0, 7.0, 8.0)
        it.client.submit("fail_once", {"name": "a"}, job_id="failing")
        for name in ("one", "two"):
            it.client.submit("hold", {"name": name}, job_id=name)
        wait_until(lambda: it.count("tried", 1) and it.count("took", 1), "they run")
        first.set(-2 * HOUR)
        wait_until(lambda: it.count("ran", 2), "delayed jobs run after a jump back")
        first.set(30 * DAY)
        wait_until(lambda: it.count("ran", 3), "and after one forward")
        first.set(7 * MINUTE)
        wait_until(lambda: it.count("ran", 4) and it.count("tried", 2) and it.count("took", 2), "and when it is undone")
        second = it.machine("second", -9 * MINUTE)
        it.client.submit("fail_once", {"name": "b"}, job_id="failing-too")
        wait_until(lambda: it.client.status("failing-too")["status"] == "retrying", "a retry waits")
        first.process.kill()
        wait_until(
            lambda: all(it.client.status(job_id)["status"] == "succeeded" for job_id in ("failing", "failing-too")),
            "a retry outlives its machine",
        )
        wait_until(lambda: it.count("gave", 2) or it.count("lost", 1), "leases outlive their machines")
        second.set(HOUR)
        it.delay(1.0)
        wait_until(lambda: it.count("ran", len(it.due)), "all delayed jobs have run")
        ticks = len(it.done("tick"))
        wait_until(lambda: it.count("tick", ticks + 1), "the rhythm goes on")
        ended = time.monotonic()
        _check_delays(it)
        _check_retries(it)
        _check_leases(it)
        _check_ticks(it, began, ended)
        jumps = [v.body.by for r in records(settings) for v in r.events if isinstance(v.body, e.ClockJumped)]
    for by in (-2 * HOUR - 7 * MINUTE, 30 * DAY + 2 * HOUR, 7 * MINUTE - 30 * DAY, HOUR + 9 * MINUTE):
        assert any(abs(jump / 1e6 - by) < 1 for jump in jumps), (by, jumps)


def _check_delays(it: Scene) -> None:
    ran = {entry.job_id: entry.at for entry in it.done("ran")}
    assert len(it.done("ran")) == len(it.due)
    for job_id, due in it.due.items():
        assert 0 <= ran[job_id] - due < LATE, (job_id, ran[job_id] - due)


def _check_retries(it: Scene) -> None:
    tries = it.done("tried")
    for job_id in ("failing", "failing-too"):
        at = [entry.at for entry in tries if entry.job_id == job_id]
        assert len(at) >= 2 and 0.7 * BACKOFF <= at[-1] - at[0] < 1.3 * BACKOFF + LATE


def _check_leases(it: Scene) -> None:
    """Nobody lost it by a clock, and nobody had it while another one did."""
    assert it.done("lost") == []
    spans = []
    for took in it.done("took"):
        gave = [entry.at for entry in it.done("gave") if (entry.job_id, entry.pid) == (took.job_id, took.pid)]
        if gave:
            spans.append((took.at, gave[0]))
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def _check_ticks(it: Scene, began: float, ended: float) -> None:
    ticks = [entry for entry in it.done("tick") if entry.at > began]
    assert max(Counter(entry.job_id for entry in ticks).values()) == 1
    for before, after in pairwise(entry.at for entry in ticks):
        assert after - before < 2 * TICK + LATE, (before - began, after - began)
    # At most one catch-up run for each of the four jumps and the takeover.
    assert len(ticks) <= (ended - began) / TICK + 6
