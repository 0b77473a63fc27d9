"""An app whose jobs, at home on all partitions, change one counter that is at home on one of them."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from rewindq import App, Context, Retry

app = App("counter")


class Turn(BaseModel):
    """The `number`-th turn of a side."""

    side: str
    number: int


#: Whatever happens to its workers, a turn is never given up.
STUBBORN = Retry(base=0.05, cap=0.5, max_attempts=10_000)


@app.job(resource="side:{side}", retry=STUBBORN, max_lost=10_000)
async def turn(ctx: Context, job: Turn) -> int:
    """Adds one under a lease, once however often it is tried."""
    async with ctx.lease("counter:c", ttl=3, wait=30):
        counter = await ctx.load("counter", "c")
        done = counter.get(job.side, [])
        if ctx.decide("done before", job.number in done):
            return int(counter.version)
        # One that is retried is overtaken by few others.
        changes = {"n": counter.get("n", 0) + 1, job.side: [*done[-99:], job.number]}
        return await ctx.save("counter", "c", changes, expected=counter.version)


def main() -> None:
    """Runs one worker, as the tests' own processes do."""
    from rewindq.engine.runtime.settings import load_settings
    from rewindq.processors.worker.daemon import DaemonOptions, run_worker
    from rewindq.processors.worker.report import WorkerOptions

    log, namespace, state_dir, until_idle = sys.argv[1:]
    settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, partitions=4)
    options = DaemonOptions(
        "tests.support.counter_app:app", WorkerOptions(name="counter", grace=1.0), until_idle=until_idle == "yes"
    )
    run_worker(settings, options)


if __name__ == "__main__":
    main()
