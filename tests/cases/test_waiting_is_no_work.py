"""A job that waits for its time is nobody's work: workers come and go meanwhile, and it runs once, when it is due.

Pinned down: a delayed job is an entry in its partition's fold (`engine/store/working.py`, the family of timers), found
by whoever owns the partition then (`processors/worker/timers.py`, `Worker._due`); it has no lease, no attempt and no
place among those that run, and a cancel takes the entry away. Timers in virtual time: `unit/worker/test_timers.py`.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.support.machines import Scene, scene
from tests.support.payments import wait_until
from tests.support.workers import records

from rewindq.engine.core import events as e
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.store.opener import open_store

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
JOBS, CANCELLED, WORKERS = 30, 6, 3
ENDS = (signal.SIGTERM, signal.SIGKILL)
#: How late a job may be, in seconds: a killed worker has to be noticed, and the machine may be busy.
LATE = 20.0


def test_delayed_jobs_outlive_their_workers_and_run_once_in_time(settings: Settings, tmp_path: Path) -> None:
    with scene(settings, tmp_path) as it:
        crowd = [it.machine(f"w{n}", 0.0) for n in range(WORKERS)]
        _at_once(it)
        it.delay(*(7.0 + number * 0.15 for number in range(JOBS)))
        later = [job_id for job_id in it.due if not job_id.startswith("in-0.0")]
        gone = later[:: JOBS // CANCELLED]
        for job_id in gone:
            it.client.cancel(job_id, reason="not wanted any more")
        for turn, end in enumerate(ENDS):
            leaving = crowd[turn].process
            leaving.send_signal(end)
            leaving.wait(30)
            it.machine(f"again{turn}", 0.0)
            _at_once(it)
        kept = [job_id for job_id in it.due if job_id not in gone]
        wait_until(lambda: it.count("ran", len(kept)), "all have run")
        for machine in it.machines:
            machine.process.terminate()
            machine.process.wait(30)
        ran, due = it.done("ran"), it.due
    assert Counter(entry.job_id for entry in ran) == dict.fromkeys(kept, 1)
    for entry in ran:
        late = entry.at - due[entry.job_id]
        assert 0 <= late < LATE, (entry.job_id, late)
    told = Counter((record.job_id, type(event.body)) for record in records(settings) for event in record.events)
    assert all(told[job_id, e.AttemptStarted] == 1 for job_id in kept)
    assert all(told[job_id, e.JobCancelled] == 1 and told[job_id, e.AttemptStarted] == 0 for job_id in gone)
    assert _timers(settings) == []


def _at_once(it: Scene) -> None:
    """A job without a delay runs beside all that wait, and those are read meanwhile."""
    it.delay(0.0)
    job_id = list(it.due)[-1]
    wait_until(lambda: _status(it, job_id) == "succeeded", "a job without a delay runs")
    assert {_status(it, job_id) for job_id in list(it.due)[::5]} <= {
        "delayed",
        "cancelled",
        "waiting",
        "running",
        "succeeded",
    }


def _status(it: Scene, job_id: str) -> str:
    return str(it.client.status(job_id)["status"])


def _timers(settings: Settings) -> list[bytes]:
    """What the stores still hold as waiting for a time."""
    found = []
    with Deployment.open(settings) as deployment:
        for partition in range(deployment.partitions):
            store = open_store(str(deployment.store_path(partition)), branch="", partition=partition)
            found += [key for key, _ in store.scan(Family.TIMERS)]
            store.close()
    return found
