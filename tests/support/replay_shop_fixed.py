"""The shop with the bug fixed: points come from the customer as it was read."""

from __future__ import annotations

from rewindq import App, Context

from .replay_shop import Order, charge

app = App("replay-shop")


@app.job(key="customer:{customer}")
async def order(ctx: Context, job: Order) -> int:
    """Charges, then writes what the customer has."""
    customer = await ctx.load("customer", job.customer)
    receipt: str = await ctx.effect("charge", charge, job.order_id, job.amount, key=job.order_id)
    points = customer.get("points", 0) + job.amount
    changes = {"points": points, "orders": customer.get("orders", 0) + 1, "last": receipt}
    await ctx.save("customer", job.customer, changes, expected=customer.version)
    return points
