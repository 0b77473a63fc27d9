"""The jobs that the benchmarks run."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel

from rewindq import App, Context

app = App("bench")


class Noop(BaseModel):
    """A payload of about 200 bytes."""

    text: str


class Order(BaseModel):
    """An order job's payload."""

    order_id: int
    customer: str
    amount: Decimal


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
