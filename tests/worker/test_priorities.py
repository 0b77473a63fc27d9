"""Priorities in a worker: the more urgent first, but nothing waits for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.processors.worker.queue import AGE_STEP
from rewindq.processors.worker.worker import Worker


class Item(BaseModel):
    """Nothing."""


def test_what_waited_long_enough_goes_before_the_more_urgent(tmp_path: Path) -> None:
    app, ran, gate = App("t"), [], asyncio.Event()

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        ran.append(ctx.job_id)
        if ctx.job_id == "first":
            await gate.wait()

    shop = Shop(tmp_path, app)
    clock = shop.deployment.clock = Movable()
    # At the beginning of a step, so that a slow machine stays within it.
    clock.added = AGE_STEP - clock.monotonic() % AGE_STEP

    async def submit(worker: Worker) -> None:
        begun = clock.added
        shop.submit("work", {}, "first")
        while not ran:
            await asyncio.sleep(0.005)
        for count, (job_id, priority) in enumerate([("low", 0), ("high", 5), ("higher", 6)], 1):
            shop.submit("work", {}, job_id, priority=priority)
            await waiting(worker, count)
        clock.added = begun + 5 * AGE_STEP
        shop.submit("work", {}, "high but late", priority=5)
        await waiting(worker, 4)
        shop.submit("work", {}, "higher but late", priority=6)
        await waiting(worker, 5)
        gate.set()

    shop.run(until=lambda report: report.succeeded == 6, during=submit, concurrency=1)
    assert ran == ["first", "higher", "high", "higher but late", "low", "high but late"]


async def waiting(worker: Worker, count: int) -> None:
    """Until so many jobs are in the queue."""
    while not worker.report.owned or len(worker._attempts.queues[0]) < count:
        await asyncio.sleep(0.005)
