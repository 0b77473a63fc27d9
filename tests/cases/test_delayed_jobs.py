"""A delayed job starts once, not before its time and soon after it, whoever dies while it becomes ready.

Pinned down: there is no second queue to move a due job to. Its due time is part of the fold, `AttemptStarted` takes it
out (`engine/core/evolve.py: _started`), and each owner finds what is due in its store (`processors/worker/timers.py`).
Processes that are killed at each point of a commit are in `tests/process/test_crash_points.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.rough_app import Job, submit
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import committer, owner
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.worker import Worker

JOBS = 24
PARTITIONS = 4
#: Where a dispatcher dies, one death after the other.
DEATHS = ["before the append", "behind the append", "behind the store"]
#: Commits between two deaths.
STEP = 2
#: How late a job may start behind its due time and the last takeover of its partition, in microseconds.
LATE_MAX = 20_000_000


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Gone(Exception):
    """Stands for a process that is gone without an orderly end."""


class Deaths:
    """Ends the worker of every second commit behind the first due time, at the next point."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.dues: dict[str, int] = {}
        self.left = list(DEATHS)
        self._commits = 0
        self._at = threading.local()  # each worker commits in a thread of its own

    def due(self) -> str:
        """The point at which this commit's worker dies, if it does."""
        if not self.left or not self.dues or self._shop.deployment.clock.now_us() < min(self.dues.values()):
            return ""
        self._commits += 1
        return self.left.pop(0) if self._commits % STEP == 0 else ""

    def arm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit, store = committer.Committer._commit, owner.ClosedTurn.store

        def dying_commit(one: committer.Committer, turns: list[owner.ClosedTurn]) -> None:
            self._at.point = self.due()
            if self._at.point == "before the append":
                raise Gone
            commit(one, turns)
            if self._at.point == "behind the store":
                raise Gone

        def dying_store(turn: owner.ClosedTurn, offsets: Sequence[int]) -> None:
            if self._at.point == "behind the append":
                raise Gone
            store(turn, offsets)

        monkeypatch.setattr(committer.Committer, "_commit", dying_commit)
        monkeypatch.setattr(owner.ClosedTurn, "store", dying_store)


@pytest.fixture
def shop(settings: Settings, tmp_path: Path) -> Iterator[Shop]:
    log = open_log(settings.log)
    yield Shop(tmp_path, App("t"), log=log, partitions=PARTITIONS, namespace=settings.namespace)
    log.close()


async def _two_at_a_time(shop: Shop, begin: Callable[[], None], done: asyncio.Event) -> int:
    """Keeps two workers running, a new one for each that dies; how many died. Begins when both own a partition."""
    running: set[asyncio.Task[object]] = set()
    workers: list[Worker] = []
    deaths = 0
    while not done.is_set():
        while len(running) < 2:
            loaded = LoadedApp(shop.app, "tests:app", "c0de")
            workers.append(Worker(shop.deployment, loaded, WorkerOptions(name=f"w{len(workers)}")))
            running.add(asyncio.create_task(workers[-1].run()))
            if len(running) == 2 and len(workers) == 2:
                while [worker.report.owned for worker in workers] != [2, 2]:
                    await asyncio.sleep(0.02)
                begin()
        waiting = asyncio.create_task(done.wait())
        ended, _ = await asyncio.wait({*running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for task in ended & running:
            running.discard(task)
            assert isinstance(task.exception(), Gone)
            deaths += 1
    for worker in workers:
        worker.stop()
    return deaths + sum(isinstance(end, Gone) for end in await asyncio.gather(*running, return_exceptions=True))


def test_delayed_jobs_start_once_at_their_time_whoever_dies(
    shop: Shop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: list[str] = []
    ended = asyncio.Event()

    def find(idempotency_key: str) -> str | None:
        return idempotency_key if idempotency_key in ledger else None

    def call(idempotency_key: str) -> str:
        ledger.append(idempotency_key)
        return idempotency_key

    @shop.app.job(max_lost=20)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", call, key="once", on_doubt=find)
        if len(ledger) == JOBS:
            ended.set()

    deaths = Deaths(shop)
    deaths.arm(monkeypatch)
    dues = deaths.dues

    def begin() -> None:
        now = shop.deployment.clock.now_us()
        dues.update({f"j{n}": now + 1_000_000 + 20_000 * n for n in range(JOBS)})
        submit(settings, [Job("work", job_id, {}, job_id, due) for job_id, due in dues.items()])

    died = asyncio.run(asyncio.wait_for(_two_at_a_time(shop, begin, ended), 60))
    shop.run()

    assert died == len(DEATHS) - len(deaths.left) >= 2
    assert Counter(ledger) == {f"{job_id}/call/once": 1 for job_id in dues}
    begun: Counter[tuple[str, int]] = Counter()
    taken_at: dict[str, int] = {}
    for record in shop.records():
        job_id = record.job_id or ""
        for event in record.events:
            if isinstance(event.body, e.PartitionTaken):
                taken_at[record.worker_id] = record.timestamp
            elif isinstance(event.body, e.AttemptStarted):
                begun[job_id, record.attempt] += 1
                possible = max(dues[job_id], taken_at[record.worker_id])
                assert dues[job_id] <= record.timestamp < possible + LATE_MAX
    assert all(begun[job_id, 1] == 1 for job_id in dues) and set(begun.values()) == {1}
    assert all(shop.job(job_id).status == s.SUCCEEDED for job_id in dues)
    assert verify(shop.deployment)["violations"] == []
