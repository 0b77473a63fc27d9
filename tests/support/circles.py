"""Jobs that wait for each other: each holds one resource and then wants the next one's, all at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.pending import read_from

QUICK = Retry(base=0.01, cap=0.05, max_attempts=40)
#: Seconds that a lease is waited for: tests end far earlier, or fail.
WAIT = 25.0


class Nest(BaseModel):
    """`first` is held while `second` is asked for."""

    first: str
    second: str


class Order(BaseModel):
    """`n` is the order's own resource, `other` the one that it wants, too."""

    n: str
    other: str


def at_home(partition: int, partitions: int, kind: str = "stock", after: int = 0) -> str:
    """A resource or key that is at home on a partition."""
    names = (f"{kind}:{n}" for n in range(after, 10_000))
    return next(name for name in names if partition_for(name.encode(), partitions) == partition)


class Circle:
    """An app whose jobs wait, in their first attempt, until `count` of them hold what they hold first."""

    def __init__(self, count: int, wait: float = WAIT, retry: Retry = QUICK) -> None:
        self.app = App("circle")
        self.met = threading.Barrier(count)
        self._count = count
        self._here = 0
        self._all = asyncio.Event()
        self.done: list[str] = []
        app = self.app

        @app.job(retry=retry)
        async def nest(ctx: Context, job: Nest) -> None:
            async with ctx.lease(job.first, ttl=20, wait=wait):
                await self.meet(ctx)
                async with ctx.lease(job.second, ttl=20, wait=wait):
                    self.done.append(ctx.job_id)

        @app.job(retry=retry)
        def nest_in_a_thread(ctx: Any, job: Nest) -> None:
            with ctx.lease(job.first, ttl=20, wait=wait):
                if ctx.attempt == 1:
                    self.met.wait(20)
                with ctx.lease(job.second, ttl=20, wait=wait):
                    self.done.append(ctx.job_id)

        nest_in_a_thread.__annotations__["ctx"] = Context

        @app.job(resource="order:{n}", retry=retry)
        async def merge(ctx: Context, job: Order) -> None:
            await self.meet(ctx)
            async with ctx.lease(f"order:{job.other}", ttl=20, wait=wait):
                self.done.append(ctx.job_id)

    async def meet(self, ctx: Context) -> None:
        """In the first attempt, waits for the others."""
        if ctx.attempt == 1:
            self._here += 1
            if self._here == self._count:
                self._all.set()
            await self._all.wait()


def submit_circle(shop: Shop, resources: list[str], kind: str = "nest") -> list[str]:
    """One job for each resource, which wants the next one's; at home on as many partitions as there are. Their ids."""
    partitions = shop.deployment.partitions
    ids = []
    for place, (first, second) in enumerate(zip(resources, [*resources[1:], resources[0]], strict=True)):
        ids.append(f"job-{place}")
        key = at_home(place % partitions, partitions, "key")
        shop.submit(kind, {"first": first, "second": second}, ids[-1], key=key)
    return ids


def detections(shop: Shop) -> list[tuple[str, e.DeadlockDetected]]:
    """The deadlocks that were detected, with the jobs that gave way."""
    return [
        (record.job_id or "", event.body)
        for record in shop.records()
        for event in record.events
        if isinstance(event.body, e.DeadlockDetected)
    ]


def cycle_of(body: e.DeadlockDetected) -> list[tuple[str, str, str]]:
    """Who holds and waits for what."""
    return [(one["job"], one["holds"], one["waits_for"]) for one in values.decode(body.cycle)]


def probes(shop: Shop) -> list[e.LeaseProbe]:
    """All probes on the commands topic."""
    deployment = shop.deployment
    return [
        event.body
        for partition in range(deployment.partitions)
        for raw in read_from(deployment, shop.topics.commands, partition, 0)
        for event in deployment.codec.decode(raw.value).events
        if isinstance(event.body, e.LeaseProbe)
    ]
