"""An attempt that succeeds while its partition is taken over has either succeeded for good, or not at all.

Pinned down: what counts is a record's place before or behind the next owner's fence (`engine/core/merge.py: _next`),
and lost attempts are decided from what was folded up to that fence (`processors/worker/takeover.py: take_over`,
`processors/worker/revive.py: _lost`). Frozen processes that wake up are in `tests/process/test_crash_points.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support import rough_app
from tests.support.shop import Shop

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.merge import Merged
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.log import Turn
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import takeover
from rewindq.processors.worker.attempts import Attempts
from rewindq.processors.worker.intake import Intake
from rewindq.processors.worker.owner import About, Owner
from rewindq.processors.worker.queue import ReadyQueue
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.revive import revive

POINTS = ["before the fold", "before the fence", "behind the fence", "behind the next attempt"]
ROUNDS = 2 * POINTS


class Bench:
    """Owners of one partition that follow each other without knowing it, straight on a log that fences nobody."""

    def __init__(self, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = open_log(settings.log)
        self.app = rough_app.app
        self.shop = Shop(folder, self.app, log=self.log, partitions=1, namespace=settings.namespace)
        self.producer = self.log.producer()
        self.owners = 0
        self.gaps: dict[str, Callable[[], None]] = {}
        append_fences = takeover._append_fences

        def with_gap(*arguments: object) -> None:
            gaps, self.gaps = self.gaps, {}
            gaps.get("before the fence", lambda: None)()
            append_fences(*arguments)  # type: ignore[arg-type]
            gaps.get("behind the fence", lambda: None)()

        monkeypatch.setattr(takeover, "_append_fences", with_gap)
        inputs = dict.fromkeys((self.shop.topics.jobs, self.shop.topics.commands), 0)
        monkeypatch.setattr(takeover, "inputs_of", lambda *_: inputs)  # there are none, and no group

    def _append(self, turn: Turn) -> list[int]:
        return self.producer.append(turn.appends)

    def take(self) -> Owner:
        """The next owner, which has decided what became of lost attempts."""
        self.owners += 1
        deployment = self.shop.deployment
        loaded = LoadedApp(self.app, "tests:app", "c0de")
        name = f"w{self.owners}"
        taken = takeover.take_over(
            deployment, self._append, 0, worker_id=name, loaded=loaded, pause=lambda seconds: None
        )
        intake = Intake(deployment, self.app)
        attempts = Attempts(deployment, self.app, intake, lambda: None, WorkerOptions())
        attempts.queues[0] = ReadyQueue()
        revive(taken.owner, self.app, attempts, intake)
        self.commit(taken.owner)
        return taken.owner

    def commit(self, owner: Owner) -> None:
        """Appends and stores what was decided, whoever owns the partition by now."""
        turn = owner.close_turn()
        if turn.appends:
            turn.store(self.producer.append(turn.appends))
            owner.committed(turn)

    def start(self, owner: Owner, job_id: str) -> None:
        """Accepts a job and starts its attempt."""
        payload = values.encode({})
        accepted = e.JobAccepted("bystander", job_id, payload, None, values.digest(payload), 0, None, 1, 0)
        owner.append(About(job_id, 0, job_id.encode()), (e.Event(accepted),))
        self.again(owner, job_id)

    def again(self, owner: Owner, job_id: str) -> None:
        """Starts a job's next attempt."""
        job = owner.states.job(job_id)
        assert job is not None
        owner.append(About(job_id, job.attempt + 1, job_id.encode()), (d.decide_start(job, None, None, None),))
        self.commit(owner)

    def succeed(self, owner: Owner, job_id: str) -> None:
        """Ends the attempt that this owner believes to run."""
        job = owner.states.job(job_id)
        assert job is not None
        result = f'"by attempt {job.attempt}"'.encode()
        owner.append(About(job_id, job.attempt, job_id.encode()), (e.Event(e.JobSucceeded(result, None, 1)),))
        self.commit(owner)


@pytest.fixture
def bench(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(settings, tmp_path, monkeypatch)
    yield bench
    bench.producer.close()
    bench.log.close()


def test_a_success_in_the_gap_stands_and_one_behind_it_changes_nothing(bench: Bench) -> None:
    old = bench.take()
    for number, point in enumerate(ROUNDS):
        job_id = f"j{number}"
        bench.start(old, job_id)
        if point == "before the fold":
            bench.succeed(old, job_id)
        bench.gaps = {point: partial(bench.succeed, old, job_id)}
        new = bench.take()
        if point.startswith("behind"):
            bench.again(new, job_id)
            if point == "behind the next attempt":
                bench.succeed(old, job_id)
            assert bench.shop.job(job_id).status == s.RUNNING, "the fresh attempt goes on"
            bench.succeed(new, job_id)
        old.store.close()
        old = new
    old.store.close()
    merged: list[Merged] = []
    bench.shop.fold(merged.append)
    assert [m.record.job_id for m in merged if m.stale] == [
        f"j{n}" for n, point in enumerate(ROUNDS) if point.startswith("behind")
    ]
    for number, point in enumerate(ROUNDS):
        job, late = bench.shop.job(f"j{number}"), point.startswith("behind")
        counted = [m.record.events for m in merged if m.record.job_id == f"j{number}" and not m.stale]
        names = [type(event.body).__name__ for events in counted for event in events]
        assert (job.status, job.attempt, job.lost) == ((s.SUCCEEDED, 2, 1) if late else (s.SUCCEEDED, 1, 0))
        assert job.result == f'"by attempt {job.attempt}"'.encode()
        assert names[-1] == "JobSucceeded" and names.count("JobSucceeded") == 1
        assert ("AttemptLost" in names) is late
    assert verify(bench.shop.deployment)["violations"] == []
