"""An app whose only outside service is a ledger file: one appended line a call, so a double call can be counted."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from rewindq import App, Context

app = App("ledger")


class Payment(BaseModel):
    """A payment of an account; several payments meet on one account."""

    payment_id: str
    account: str
    amount: int


def ledger() -> Path:
    """The ledger's file, named by the environment."""
    return Path(os.environ["LEDGER"])


def pay(payment_id: str, amount: int, idempotency_key: str) -> str:
    """Appends one line in one write, as a service would commit one row."""
    line = f"{idempotency_key} {payment_id} {amount}\n".encode()
    handle = os.open(ledger(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)
    return f"receipt-{payment_id}"


def find(payment_id: str, amount: int, idempotency_key: str) -> str | None:
    """Whether the payment was made: its receipt, or None."""
    if not ledger().exists():
        return None
    done = any(line.split(" ")[0] == idempotency_key for line in ledger().read_text().splitlines())
    return f"receipt-{payment_id}" if done else None


@app.job(key="account:{account}", max_lost=20)
async def payment(ctx: Context, job: Payment) -> str:
    """Load, pay, save on the version that was read: a conflict runs again and must not pay again."""
    account = await ctx.load("account", job.account)
    receipt: str = await ctx.effect(
        "pay", pay, job.payment_id, job.amount, key=job.payment_id, on_doubt=find, timeout=10
    )
    total = account.get("total", 0) + job.amount
    await ctx.save("account", job.account, {"total": total}, expected=account.version)
    return receipt
