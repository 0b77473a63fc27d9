"""An app whose handlers write when they start and end: for tests of holds and limits over several processes.

`LEDGER` names the file that all of them append to. While the file `LEDGER.broken` is there, `fragile` jobs fail.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from rewindq import App, Context, Retry

app = App("ops")


class Line(NamedTuple):
    """What a handler wrote: `start` or `end`, of which job, at seconds since the epoch, in which process."""

    what: str
    type: str
    job_id: str
    at: float
    pid: int


class Work(BaseModel):
    """Something of a tenant that takes a while; `fails` while the ledger is broken."""

    number: int = 0
    tenant: str = "a"
    seconds: float = 0.0
    fails: bool = False


def lines(ledger: Path, what: str = "start", type_: str | None = None) -> list[Line]:
    """What was written, in order."""
    if not ledger.exists():
        return []
    rows = [line.split(" ") for line in ledger.read_text().splitlines()]
    found = [Line(row[0], row[1], row[2], float(row[3]), int(row[4])) for row in rows]
    return [line for line in found if line.what == what and type_ in (None, line.type)]


def write(what: str, kind: str, job_id: str) -> None:
    """Appends a line in one write."""
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{what} {kind} {job_id} {time.time()} {os.getpid()}\n".encode())
    finally:
        os.close(handle)


def broken() -> bool:
    """Whether jobs that may fail do."""
    return Path(os.environ["LEDGER"] + ".broken").exists()


async def _work(ctx: Context, job: Work, kind: str) -> None:
    write("start", kind, ctx.job_id)
    await asyncio.sleep(job.seconds)
    if job.fails and broken():
        raise RuntimeError("broken")
    write("end", kind, ctx.job_id)


@app.job()
async def charge(ctx: Context, job: Work) -> None:
    """A plain one."""
    await _work(ctx, job, "charge")


@app.job()
async def other(ctx: Context, job: Work) -> None:
    """Another plain one."""
    await _work(ctx, job, "other")


@app.job(resource="tenant:{tenant}", retry=Retry(max_attempts=1), on_failure="block_key")
async def fragile(ctx: Context, job: Work) -> None:
    """A failed one blocks its tenant."""
    await _work(ctx, job, "fragile")


@app.job(concurrency_key="tenant:{tenant}", concurrency=2)
async def limited(ctx: Context, job: Work) -> None:
    """Two at once of a tenant."""
    await _work(ctx, job, "limited")


@app.job(rate="20/s")
async def rated(ctx: Context, job: Work) -> None:
    """Twenty a second."""
    await _work(ctx, job, "rated")
