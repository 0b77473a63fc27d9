"""A bank that jobs of all partitions ask under one global key, in a whole Rewindq in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.effects import list_effects
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.verify import verify

PARTITIONS = 4
QUICK = Retry(base=0.01, cap=0.05, max_attempts=20)
#: A job's key at home on each partition.
KEYS = {partition_for(f"order:{n}".encode(), PARTITIONS): f"order:{n}" for n in range(200)}
#: A global key at home on partition 2.
SHARED = next(f"payment/{n}" for n in range(100) if partition_for(f"payment/{n}".encode(), PARTITIONS) == 2)
FULL = f"/charge/{SHARED.replace('/', '%2F')}"
ELSEWHERE = [0, 1, 3]


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Bank:
    """Counts calls; `act` is what a call does."""

    def __init__(self, act: Callable[[int], Any] = lambda number: f"receipt {number}") -> None:
        self.calls: list[int] = []
        self.keys: set[str] = set()
        self.found: list[str] = []
        self.act = act

    async def charge(self, n: int, idempotency_key: str) -> str:
        self.calls.append(n)
        self.keys.add(idempotency_key)
        answer = self.act(len(self.calls))
        return str(await answer if asyncio.iscoroutine(answer) else answer)


def app_of(bank: Bank, retry: Retry = QUICK, **options: Any) -> App:
    app = App("bank")

    @app.job(retry=retry)
    async def pay(ctx: Context, job: Item) -> str:
        receipt: str = await ctx.effect("charge", bank.charge, job.n, global_key=SHARED, **options)
        return receipt

    return app


def submit(shop: Shop, partition: int, job_id: str, n: int = 0) -> None:
    shop.submit("pay", {"n": n}, job_id, key=KEYS[partition])


def in_doubt(shop: Shop) -> list[tuple[str, str, int]]:
    with Past(shop.deployment) as past:
        return [(one.key, one.record.job_id, one.partition) for one in list_effects(past, in_doubt=True)[0]]


def checked(shop: Shop) -> None:
    report = verify(shop.deployment)
    assert report["violations"] == []
    assert report["digest"] == report["rebuilt_digest"]
