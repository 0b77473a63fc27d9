"""An app whose outside service answers late: what it was asked is done at once and stands in a ledger with its time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from rewindq import App, Context

app = App("slow")


class Call(NamedTuple):
    """One call that reached the service, at seconds since the epoch."""

    key: str
    at: float
    pid: int


class Work(BaseModel):
    """Something that takes `seconds` outside."""

    number: int
    seconds: float


def calls(ledger: Path) -> list[Call]:
    """What reached the service, in order."""
    if not ledger.exists():
        return []
    rows = [line.split(" ") for line in ledger.read_text().splitlines()]
    return [Call(row[0], float(row[1]), int(row[2])) for row in rows]


def _ledger() -> Path:
    return Path(os.environ["LEDGER"])


async def serve(number: int, seconds: float, idempotency_key: str) -> str:
    """Does it at once, in one write, and answers late."""
    handle = os.open(_ledger(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{idempotency_key} {time.time()} {os.getpid()}\n".encode())
    finally:
        os.close(handle)
    await asyncio.sleep(seconds)
    return f"done-{number}"


def find(number: int, seconds: float, idempotency_key: str) -> str | None:
    """The answer, when it was done."""
    return f"done-{number}" if any(call.key == idempotency_key for call in calls(_ledger())) else None


@app.job(key="work:{number}")
async def work(ctx: Context, job: Work) -> str:
    """One slow effect, and a state that tells of it."""
    answer: str = await ctx.effect("serve", serve, job.number, job.seconds, key="serve", on_doubt=find, timeout=30)
    await ctx.save("work", str(job.number), {"answer": answer}, expected=0)
    return answer
