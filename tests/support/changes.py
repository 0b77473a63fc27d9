"""Jobs that write what their payloads say into items of all partitions, and reverts of them beside a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import DELETE, App, Context, Retry
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.client import Client, Revert
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.reverts import plan_of
from rewindq.engine.runtime.states import history_shown

PARTITIONS = 4


def at_home(partition: int) -> str:
    """An id whose aggregate `item:{id}` is at home on a partition."""
    return next(str(n) for n in range(1000) if partition_for(f"item:{n}".encode(), PARTITIONS) == partition)


HERE, THERE, ELSEWHERE = (at_home(number) for number in (0, 1, 3))


class Change(BaseModel):
    """Fields to write, by item; a field that is None is removed."""

    item: str = HERE
    writes: dict[str, dict[str, int | None]] = {}
    fail: bool = False


class Place:
    """A shop of four partitions whose jobs write what their payloads say. `revert` asks, runs, and answers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        app = App("t")
        self.go_on = asyncio.Event()
        self.loaded = asyncio.Event()

        @app.job(resource="item:{item}", retry=Retry(max_attempts=3, base=0.01))
        async def change(ctx: Context, job: Change) -> None:
            for item, fields in job.writes.items():
                found = await ctx.load("item", item)
                written = {name: DELETE if value is None else value for name, value in fields.items()}
                await ctx.save("item", item, written, expected=found.version)
            if job.fail:
                raise ValueError("it goes wrong")

        @app.job(resource="item:{item}", retry=Retry(max_attempts=3, base=0.01))
        async def slow(ctx: Context, job: Change) -> None:
            found = await ctx.load("item", job.item)
            self.loaded.set()
            await self.go_on.wait()
            await ctx.save("item", job.item, {"a": found.get("a", 0) + 10}, expected=found.version)

        @app.job(resource="item:{item}", retry=Retry(max_attempts=3, base=0.01))
        async def twice(ctx: Context, job: Change) -> None:
            found = await ctx.load("item", job.item)
            fields = {"a": ctx.attempt, "b": 1} if ctx.attempt == 1 else {"a": ctx.attempt}
            await ctx.save("item", job.item, fields, expected=found.version)
            if ctx.attempt == 1:
                raise TimeoutError("once more")

        @app.job()
        async def pay(ctx: Context, job: Change) -> None:
            async def send() -> str:
                return "receipt"

            async def fall_silent() -> str:
                raise TimeoutError("no answer")

            await ctx.effect("send", send, key="k")
            await ctx.effect("ask", fall_silent, key="k")

        self.shop = Shop(folder, app, partitions=PARTITIONS, **settings)

    def change(self, job_id: str, writes: dict[str, Any], **fields: Any) -> None:
        self.shop.submit("change", {"writes": writes, **fields}, job_id, key=f"item:{fields.get('item', HERE)}")
        self.shop.run()

    def plan(self, job_id: str, attempt: int | None = None) -> Revert:
        with Past(self.shop.deployment) as past:
            return plan_of(past, job_id, attempt)

    def revert(self, job_id: str, attempt: int | None = None) -> Revert:
        """Asks while a worker runs."""
        done: list[Revert] = []

        async def ask(worker: Any) -> None:
            with Client(deployment=self.shop.deployment) as client:
                done.append(await asyncio.to_thread(client.revert, job_id, "a mistake", "ann", 20.0, attempt))
            worker.stop()

        self.shop.run(until=lambda report: False, during=ask)
        return done[0]

    def data(self, item: str) -> dict[str, Any]:
        return self.shop.aggregate(f"item:{item}").data

    def history(self, item: str) -> list[dict[str, Any]]:
        with Past(self.shop.deployment) as past:
            home = past.home(f"item:{item}")
            return history_shown(home.store, home.partition, f"item:{item}", None)


def rows(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["key"], row["field"], row["action"], row["from"], row["to"]) for row in found]
