"""A small app for tests of the client and the command line: `tests.support.apps:app`."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, SecretStr

from rewindq import App, Context, FailureClass, Retry

app = App("bank")


class Refused(Exception):
    """The bank says no."""


app.classify(Refused, FailureClass.VALIDATION)


class Deposit(BaseModel):
    """Money for an account."""

    account: str
    amount: Decimal
    pin: SecretStr = SecretStr("0000")


class Balance(BaseModel):
    """What a deposit answers."""

    total: Decimal


async def book(account: str, amount: Decimal) -> str:
    """The outside world."""
    return f"booked {amount} on {account}"


@app.job(resource="account:{account}", retry=Retry(max_attempts=2))
async def deposit(ctx: Context, job: Deposit) -> Balance:
    """Load, decide, book, save."""
    account = await ctx.load("account", job.account)
    total = account.get("total", Decimal(0)) + job.amount
    if ctx.decide("refuse", job.amount <= 0):
        raise Refused(f"{job.amount} is no deposit")
    await ctx.effect("book", book, job.account, job.amount, key=f"book-{ctx.job_id}")
    await ctx.save("account", job.account, {"total": total, "last": ctx.job_id}, expected=account.version)
    return Balance(total=total)


class Text(BaseModel):
    """A text."""

    text: str = ""


@app.job()
async def echo(ctx: Context, job: Text) -> Text:
    """Gives the text back."""
    return job


class Wire(BaseModel):
    """Money for another bank, which does not answer."""

    to: str


async def send_wire(to: str) -> str:
    """The other bank."""
    raise TimeoutError("no answer from the other bank")


@app.job(retry=Retry(max_attempts=1))
async def wire(ctx: Context, job: Wire) -> str:
    """Sends; the outcome stays unknown."""
    receipt: str = await ctx.effect("send", send_wire, job.to, key="send")
    return receipt
