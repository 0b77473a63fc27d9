"""A worker process whose wall clock is off, and jumps whenever a test writes another number. Run as a program.

Arguments: log URL, namespace, state folder, a file with the seconds that the wall clock is ahead. The monotonic clock,
which all processes of a machine share, is the true one: the ledger's times are its.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from rewindq import App, Context, Retry

app = App("skewed")
#: Seconds between two planned instants, of a lease's TTL, for which it is held, and before a retry (20 % jitter).
TICK, TTL, HELD, BACKOFF = 2, 5, 4.0, 1.5


class Entry(NamedTuple):
    """Something that was done, at seconds of the monotonic clock."""

    what: str
    job_id: str
    at: float
    pid: int


class Named(BaseModel):
    """Anything."""

    name: str = ""


def entries(ledger: Path) -> list[Entry]:
    """What was done, in order."""
    if not ledger.exists():
        return []
    rows = [line.split(" ") for line in ledger.read_text().splitlines()]
    return [Entry(row[0], row[1], float(row[2]), int(row[3])) for row in rows]


def _enter(what: str, job_id: str) -> None:
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{what} {job_id} {time.monotonic()} {os.getpid()}\n".encode())
    finally:
        os.close(handle)


@app.job(key="{name}")
async def delayed(ctx: Context, job: Named) -> None:
    """Says when it runs."""
    _enter("ran", ctx.job_id)


@app.cron(f"*/{TICK} * * * * *", name="tick")
@app.job()
async def tick(ctx: Context, job: Named) -> None:
    """Says when it runs."""
    _enter("tick", ctx.job_id)


@app.job(key="{name}", retry=Retry(base=BACKOFF, cap=BACKOFF))
async def fail_once(ctx: Context, job: Named) -> None:
    """Fails at first."""
    _enter("tried", ctx.job_id)
    if ctx.attempt == 1:
        raise ConnectionError("not yet")


@app.job(key="{name}", max_lost=20, retry=Retry(base=0.1, cap=0.1, max_attempts=20))
async def hold(ctx: Context, job: Named) -> None:
    """Holds what all of its kind want, for two renewals."""
    async with ctx.lease("stock:9", ttl=TTL, wait=60) as lease:
        _enter("took", ctx.job_id)
        await asyncio.sleep(HELD)
        _enter("lost" if lease.lost else "gave", ctx.job_id)


def shift(ahead: Path) -> None:
    """From here on this process sees a wall clock of its own."""
    true_ns = time.time_ns

    def shifted_ns() -> int:
        return true_ns() + int(float(ahead.read_text() or 0) * 1e9)

    time.time_ns = shifted_ns
    time.time = lambda: shifted_ns() / 1e9


def main() -> None:
    """Runs one worker until it is stopped."""
    from rewindq.engine.runtime.settings import load_settings
    from rewindq.processors.worker.daemon import DaemonOptions, run_worker
    from rewindq.processors.worker.report import WorkerOptions

    log, namespace, state_dir, ahead = sys.argv[1:]
    shift(Path(ahead))
    settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, partitions=4)
    run_worker(settings, DaemonOptions("tests.support.skewed_worker:app", WorkerOptions(name="skewed", grace=1.0)))


if __name__ == "__main__":
    main()
