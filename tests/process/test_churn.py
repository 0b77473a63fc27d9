"""Workers that join and leave all the time while slow effects run: work goes on, nothing is burnt or called twice."""

from __future__ import annotations

import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.payments import wait_until
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

GRACE_S = 2.0
ROUNDS = 5
#: Most effects end within the grace; some are handed back in the middle of the call.
SECONDS = [0.3, 0.6, 0.9, 3.0]
JOBS = 48
#: A worker's start, a hand-over and a takeover, on a busy machine.
STALL_S = 8.0


def test_workers_that_come_and_go_all_the_time(settings: Settings, tmp_path: Path) -> None:
    # Nobody dies here, so nobody has to be noticed as dead: a busy machine must not look like one.
    patient = settings.log.replace("session_timeout_ms=2000", "session_timeout_ms=15000").replace(
        "lease_ttl=2", "lease_ttl=15"
    )
    settings = settings.model_copy(update={"log": patient})
    ledger = tmp_path / "ledger"
    submit_work(settings, [SECONDS[number % len(SECONDS)] for number in range(JOBS)])
    options = ("--concurrency", "3", "--grace", str(GRACE_S), "--name", "w")
    running = [Running(settings, ledger, *options)]
    everyone = list(running)
    try:
        running[0].await_line("partition taken")
        for _ in range(ROUNDS):
            worker = Running(settings, ledger, *options)
            everyone.append(worker)
            running.append(worker)
            worker.await_line("partition taken")
            running.pop(0).process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(calls(ledger)) == JOBS, "all is called")
        running[0].process.send_signal(signal.SIGTERM)
        wait_until(lambda: all(worker.process.poll() is not None for worker in everyone), "all have left")
        everyone.append(Running(settings, ledger, "--until-idle", "--concurrency", "20", "--name", "w"))
        summaries = [worker.end() for worker in everyone]
    finally:
        for worker in everyone:
            worker.kill()
    assert [worker.process.returncode for worker in everyone] == [0] * len(everyone)
    gap = max(b.at - a.at for a, b in pairwise(calls(ledger)))
    counts = Counter(call.key for call in calls(ledger))
    assert len(counts) == JOBS and set(counts.values()) == {1}
    events = event_counts(settings)
    assert events["JobSucceeded"] == JOBS
    assert (events["AttemptLost"], events["RetryScheduled"], events["MovedToInvestigation"]) == (0, 0, 0)
    assert gap < STALL_S
    assert sum(summary["succeeded"] for summary in summaries) == JOBS
    handovers = [summary["handovers"] for summary in summaries]
    assert sum(one["count"] for one in handovers) > ROUNDS
    assert 0 < max(one["max_s"] for one in handovers) < GRACE_S + 2
    assert [worker.complaints for worker in everyone] == [[] for _ in everyone]
