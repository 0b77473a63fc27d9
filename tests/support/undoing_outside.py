"""An app whose ledger is a file, and whose undoing dies with its process the first time: `…:app`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pydantic import BaseModel

from rewindq import App, Context, FailureClass

app = App("outside")
app.classify(RuntimeError, FailureClass.VALIDATION)


class Order(BaseModel):
    """An order; `ledger` is a file."""

    ledger: str


def note(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(line + "\n")


def charge(ledger: str) -> str:
    note(ledger, "charge")
    return "r1"


def refund(receipt: str, ledger: str) -> None:
    note(ledger, f"refund {receipt}")
    if Path(ledger).read_text().count("refund") == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.job()
async def order(ctx: Context, job: Order) -> None:
    await ctx.effect("charge", charge, job.ledger, key="charge", compensate=refund, idempotent=True)
    raise RuntimeError("sold out")
