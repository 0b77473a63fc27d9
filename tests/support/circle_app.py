"""An app whose jobs hold one resource each and then want the next one's. Run as a program, it is one worker of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic import BaseModel

from rewindq import App, Context, Retry
from rewindq.engine.runtime.settings import load_settings
from rewindq.processors.worker.daemon import DaemonOptions, run_worker
from rewindq.processors.worker.report import WorkerOptions

app = App("circle")
#: Whatever happens to its workers, a job is never given up.
STUBBORN = Retry(base=0.05, cap=0.5, max_attempts=10_000)
#: Seconds that a lease is waited for.
WAIT = 120.0


class Nest(BaseModel):
    """`first` is held while `second` is asked for, in the first attempt not before `count` are in the folder `met`."""

    first: str
    second: str
    met: str
    count: int


def all_met(met: Path, job_id: str, count: int) -> bool:
    """Comes to the others; whether all are there."""
    (met / job_id).touch()
    return len(list(met.iterdir())) == count


@app.job(retry=STUBBORN, max_lost=10_000)
async def nest(ctx: Context, job: Nest) -> None:
    """Holds both at once."""
    async with ctx.lease(job.first, ttl=3, wait=WAIT):
        while ctx.attempt == 1 and not all_met(Path(job.met), ctx.job_id, job.count):
            await asyncio.sleep(0.05)
        async with ctx.lease(job.second, ttl=3, wait=WAIT):
            pass


def main() -> None:
    """Runs one worker until it is told to stop."""
    log, namespace, state_dir = sys.argv[1:]
    settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, partitions=4)
    run_worker(settings, DaemonOptions("tests.support.circle_app:app", WorkerOptions(name="circle", grace=1.0)))


if __name__ == "__main__":
    main()
