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
#: How late anything may be, in seconds, in steady work and where a worker was killed or has to start.
SLACK, TAKEOVER = 2.0, 12.0


def test_clocks_that_differ_and_jump_move_nothing(settings: Settings, tmp_path: Path) -> None:
    with scene(settings, tmp_path) as it:
        first = it.machine("first", 7 * MINUTE)
        wait_until(lambda: it.count("tick", 2), "the first machine plans")
        began = time.monotonic()
        it.delay(1.0, 2.0, 3.0, 4.0, 9.0, 10.0)
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
        killed = time.monotonic()
        it.client.submit("fail_once", {"name": "b"}, job_id="failing-too")
        second = it.machine("second", -9 * MINUTE)
        first.process.kill()
        wait_until(lambda: it.count("tried", 4) and it.count("gave", 2), "the second machine works")
        second.set(HOUR)
        it.delay(1.0)
        wait_until(lambda: it.count("ran", len(it.due)), "all delayed jobs have run")
        ticks = len(it.done("tick"))
        wait_until(lambda: it.count("tick", ticks + 2), "the rhythm goes on")
        ended = time.monotonic()
        _check_delays(it, killed)
        _check_retries(it)
        _check_leases(it)
        _check_ticks(it, began, ended, killed)
        jumps = [v.body.by for r in records(settings) for v in r.events if isinstance(v.body, e.ClockJumped)]
    for by in (-2 * HOUR - 7 * MINUTE, 30 * DAY + 2 * HOUR, 7 * MINUTE - 30 * DAY, HOUR + 9 * MINUTE):
        assert any(abs(jump / 1e6 - by) < 1 for jump in jumps), (by, jumps)


def _check_delays(it: Scene, killed: float) -> None:
    ran = {entry.job_id: entry.at for entry in it.done("ran")}
    assert len(it.done("ran")) == len(it.due)
    for job_id, due in it.due.items():
        late = max(SLACK, killed + TAKEOVER - due) if due > killed else SLACK
        assert -0.1 <= ran[job_id] - due < late, (job_id, ran[job_id] - due)


def _check_retries(it: Scene) -> None:
    tries = it.done("tried")
    for job_id, late in (("failing", SLACK), ("failing-too", TAKEOVER)):
        first, second = [entry.at for entry in tries if entry.job_id == job_id]
        assert 0.7 * BACKOFF <= second - first < 1.3 * BACKOFF + late


def _check_leases(it: Scene) -> None:
    """Nobody lost it by a clock, and nobody had it while another one did."""
    assert it.done("lost") == []
    spans = []
    for took in it.done("took"):
        gave = [entry.at for entry in it.done("gave") if (entry.job_id, entry.pid) == (took.job_id, took.pid)]
        if gave:
            spans.append((took.at, gave[0]))
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def _check_ticks(it: Scene, began: float, ended: float, killed: float) -> None:
    ticks = [entry for entry in it.done("tick") if entry.at > began]
    assert max(Counter(entry.job_id for entry in ticks).values()) == 1
    for before, after in pairwise(entry.at for entry in ticks):
        slow = TAKEOVER if before < killed + TAKEOVER and after > killed else 0.0
        assert after - before < 2 * TICK + 1 + slow, (before - began, after - began)
    # At most one catch-up run for each of the four jumps and the takeover.
    assert len(ticks) <= (ended - began) / TICK + 6
