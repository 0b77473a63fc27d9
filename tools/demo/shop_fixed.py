"""The shop with its points mended: they come from the account that was read, not from a cache.

`rewindq fork JOB --app rewindq.tools.demo.shop_fixed:app` shows what it would have done.
"""

from __future__ import annotations

from rewindq import App, Context, FailureClass, Retry

from .calls import Unavailable, charge, find_charge, find_reservation, reserve
from .models import Placed, PlaceOrder

app = App("shop")
app.classify(Unavailable, FailureClass.TRANSIENT)


@app.job(key="customer:{customer_id}", retry=Retry(max_attempts=10, base=0.1, cap=2), timeout=30)
async def place_order(ctx: Context, job: PlaceOrder) -> Placed:
    """Reserves at the warehouse, charges at the gateway, then updates the customer's account."""
    account = await ctx.load("customer", job.customer_id)
    await ctx.effect(
        "reserve", reserve, job.order_id, job.quantity,
        key=f"reserve-{job.order_id}", on_doubt=find_reservation, timeout=1,
    )  # fmt: skip
    receipt = await ctx.effect(
        "charge", charge, job.order_id, job.customer_id, job.amount,
        key=f"charge-{job.order_id}", on_doubt=find_charge, timeout=1,
    )  # fmt: skip
    changes = {
        "orders": account.get("orders", 0) + 1,
        "spent": account.get("spent", 0) + job.amount,
        "points": account.get("points", 0) + int(job.amount),
        "last_order": job.order_id,
    }
    await ctx.save("customer", job.customer_id, changes, expected=account.version)
    return Placed(order_id=job.order_id, receipt=receipt, points=changes["points"])
