"""A job that waits for its retry, or whose worker is dead, holds no resource and no slot: ready jobs go on.

Pinned down: an attempt's end frees its resource and its key's slot (`processors/worker/attempts.py: _end`), a new owner
begins without those of lost attempts (`processors/worker/revive.py`), and who waits is told for whom
(`engine/runtime/waits.py`). Blocked keys, which hold on purpose, are in `tests/worker/test_block_key.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import state as s
from rewindq.engine.core.times import format_time
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.settings import Settings, load_settings
from rewindq.processors.worker.worker import Worker

HOUR = 3600.0


class Item(BaseModel):
    """What a job works on."""

    n: int = 0


class Gone(Exception):
    """Stands for a process that is gone without an orderly end."""


class Bench:
    """Jobs of one thing: some fail for now, some hang; the order of their attempts is noted."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.log = open_log(settings.log)
        self.ran: list[str] = []
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        self.app = App("t")
        later = Retry(max_attempts=5, base=HOUR, cap=HOUR, jitter=0)
        self.app.job("plain", resource="thing:1", retry=later)(self.work)
        self.app.job("strict", resource="thing:1", retry=later, on_failure="block_key")(self.work)
        self.app.job("slots", concurrency_key="thing:1", concurrency=2, retry=later)(self.work)
        self.shop = Shop(folder, self.app, log=self.log, partitions=1, namespace=settings.namespace)
        self.clock = self.shop.deployment.clock = Movable()

    async def work(self, ctx: Context, job: Item) -> None:
        self.ran.append(ctx.job_id)
        if ctx.job_id in self.hanging:
            await asyncio.Event().wait()
        if ctx.job_id in self.failing:
            raise ConnectionError("not now")

    def submit(self, kind: str, *job_ids: str) -> None:
        for job_id in job_ids:
            self.shop.submit(kind, {}, job_id, key="thing:1")

    def waits(self, job_id: str) -> str | None:
        with Past(self.shop.deployment) as past:
            return past.find(job_id).waits


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(load_settings(log=f"sqlite:///{tmp_path}/log.db"), tmp_path)
    yield bench
    bench.log.close()


@pytest.mark.parametrize("kind", ["plain", "slots"])
def test_what_waits_for_its_retry_holds_nothing(bench: Bench, kind: str) -> None:
    bench.failing = {"a", "a2"}
    bench.submit(kind, "a", "a2")

    async def later(worker: Worker) -> None:
        while worker.report.retried < 2:
            await asyncio.sleep(0.01)
        bench.submit(kind, "b", "c")

    bench.shop.run(lambda report: report.succeeded == 2, later)
    assert bench.ran == ["a", "a2", "b", "c"]
    assert bench.shop.job("a").status == s.RETRYING
    bench.failing = set()
    bench.clock.added = HOUR + 1
    assert bench.shop.run().succeeded == 2
    assert sorted(bench.ran[4:]) == ["a", "a2"]


def test_in_a_strict_order_they_are_told_behind_whom_and_until_when(bench: Bench) -> None:
    bench.failing = {"a"}
    bench.submit("strict", "a", "b")

    async def look(worker: Worker) -> None:
        while worker.report.retried < 1:
            await asyncio.sleep(0.01)
        due = bench.shop.job("a").due
        assert due is not None
        assert bench.waits("b") == f"waits behind a, which is retrying until {format_time(due)}"
        bench.failing = set()
        bench.clock.added = HOUR + 1
        worker.wake()

    bench.shop.run(during=look)
    assert bench.ran == ["a", "a", "b"]


@pytest.mark.parametrize("kind", ["plain", "slots"])
def test_what_a_dead_worker_held_is_free_for_the_next_one(settings: Settings, tmp_path: Path, kind: str) -> None:
    bench = Bench(settings, tmp_path)
    held = ["a"] if kind == "plain" else ["a", "a2"]
    bench.hanging = set(held)
    bench.submit(kind, *held, "b", "c")

    async def die(worker: Worker) -> None:
        while set(bench.ran) != set(held) or "JobAccepted" not in bench.shop.names("c"):
            await asyncio.sleep(0.01)
        if kind == "plain":
            assert bench.waits("b") == "waits for thing:1, which a holds"
        worker.failure = Gone()
        worker.wake()

    with pytest.raises(Gone):
        bench.shop.run(lambda report: False, die)
    bench.hanging = set()
    assert bench.shop.run().succeeded == len(held) + 2
    assert sorted(bench.ran) == sorted([*held, *held, "b", "c"])
    bench.log.close()
