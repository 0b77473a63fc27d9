"""A worker's name may be used again at any time: who is meant is told by the incarnation, never by the name."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.support.payments import wait_until
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, records, submit_work

from rewindq.engine.core import events as e
from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
JOBS = 8


def _started_by(settings: Settings) -> Counter[str]:
    found = records(settings)
    return Counter(r.worker_id for r in found if any(isinstance(event.body, e.AttemptStarted) for event in r.events))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_successor_of_the_same_name_neither_steals_nor_strands_work(
    settings: Settings, tmp_path: Path, end: signal.Signals
) -> None:
    ledger = tmp_path / "ledger"
    options = ("--name", "w-1", "--grace", "1", "--concurrency", "4")
    submit_work(settings, [2.0] * JOBS)
    first = Running(settings, ledger, *options)
    second = None
    try:
        wait_until(lambda: len(calls(ledger)) >= 2, "the first one works")
        if end == signal.SIGKILL:  # the successor comes while the dead one's membership still stands
            first.process.kill()
            second = Running(settings, ledger, *options)
        else:
            second = Running(settings, ledger, *options)
            second.await_line("partition taken")
            first.process.send_signal(end)
        wait_until(lambda: event_counts(settings)["JobSucceeded"] == JOBS, "all is done", 60)
        second.stop()
    finally:
        for worker in (first, second):
            if worker is not None:
                worker.kill()
    assert len(_started_by(settings)) == 2
    assert all(worker.startswith("w-1-") for worker in _started_by(settings))
    keys = Counter(call.key for call in calls(ledger))
    assert len(keys) == JOBS and set(keys.values()) == {1}
    lost = event_counts(settings)["AttemptLost"]
    assert lost > 0 if end == signal.SIGKILL else lost == 0
