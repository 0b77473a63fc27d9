"""The jobs that the benchmarks run."""

from __future__ import annotations

import time
from decimal import Decimal
from itertools import count

from pydantic import BaseModel

from rewindq import App, Context
from rewindq.engine.core.partitioner import partition_for

app = App("bench")


class Noop(BaseModel):
    """A payload of about 200 bytes."""

    text: str


class Order(BaseModel):
    """An order job's payload."""

    order_id: int
    customer: str
    amount: Decimal


class Hold(BaseModel):
    """Which resource a lease job holds."""

    resource: str


class Receipt(BaseModel):
    """What the gateway answers."""

    receipt: str


@app.job()
async def noop(ctx: Context, job: Noop) -> None:
    """Does nothing."""


async def charge(order_id: int, amount: Decimal) -> Receipt:
    """A gateway in the same process, so that only the queue is measured."""
    return Receipt(receipt=f"r-{order_id}")


@app.job(resource="order:{order_id}")
async def order(ctx: Context, job: Order) -> Receipt:
    """Load, decide, effect, save."""
    found = await ctx.load("order", job.order_id)
    if ctx.decide("already paid", found.get("status") == "paid"):
        return Receipt(receipt=str(found["receipt"]))
    receipt: Receipt = await ctx.effect("charge", charge, job.order_id, job.amount, key="charge")
    await ctx.save("order", job.order_id, {"status": "paid", "receipt": receipt.receipt}, expected=found.version)
    return receipt


#: Partitions of a fresh namespace.
PARTITIONS = 8


def elsewhere(key: str, kind: str) -> str:
    """An id of this kind of aggregate that is at home on another partition than `key`."""
    home = partition_for(key.encode(), PARTITIONS)
    identity = key.partition(":")[2]
    return next(
        f"{identity}-{n}" for n in count() if partition_for(f"{kind}:{identity}-{n}".encode(), PARTITIONS) != home
    )


@app.job(resource="order:{order_id}")
async def stock(ctx: Context, job: Order) -> Receipt:
    """An order job whose stock is at home on another partition: loaded before the charge, saved after it."""
    stock_id = elsewhere(f"order:{job.order_id}", "stock")
    found = await ctx.load("order", job.order_id)
    left = await ctx.load("stock", stock_id)
    if ctx.decide("already paid", found.get("status") == "paid"):
        return Receipt(receipt=str(found["receipt"]))
    receipt: Receipt = await ctx.effect("charge", charge, job.order_id, job.amount, key="charge")
    await ctx.save("stock", stock_id, {"left": left.get("left", 100) - 1}, expected=left.version)
    await ctx.save("order", job.order_id, {"status": "paid", "receipt": receipt.receipt}, expected=found.version)
    return receipt


@app.job()
async def lease(ctx: Context, job: Hold) -> float:
    """Milliseconds until a free lease is held."""
    began = time.perf_counter()
    async with ctx.lease(job.resource):
        return 1000 * (time.perf_counter() - began)
