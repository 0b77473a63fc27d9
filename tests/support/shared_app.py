"""An app whose jobs, at home on all partitions, call a ledger under keys that they share; the calls answer late.

Run as a program it is one worker: log URL, namespace, state folder, and whether it ends when it is idle (`yes`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from rewindq import App, Context, Retry

app = App("shared")
SECONDS = float(os.environ.get("CALL_SECONDS", "0.5"))


class Payment(BaseModel):
    """A payment that an order waits for, maybe together with others."""

    order: str
    payment: str


def calls(ledger: Path) -> list[tuple[str, int]]:
    """Key and process of each call that reached the service, in order."""
    if not ledger.exists():
        return []
    rows = [line.split(" ") for line in ledger.read_text().splitlines()]
    return [(row[0], int(row[1])) for row in rows]


async def serve(payment: str, idempotency_key: str) -> str:
    """Does it at once, in one write, and answers late."""
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{idempotency_key} {os.getpid()}\n".encode())
    finally:
        os.close(handle)
    await asyncio.sleep(SECONDS)
    return f"receipt of {payment}"


def find(payment: str, idempotency_key: str) -> str | None:
    """The answer, when it was done."""
    done = any(key == idempotency_key for key, _ in calls(Path(os.environ["LEDGER"])))
    return f"receipt of {payment}" if done else None


@app.job(resource="order:{order}", retry=Retry(base=0.05, cap=0.5, max_attempts=1000))
async def pay(ctx: Context, job: Payment) -> str:
    """One call for all orders of a payment."""
    receipt: str = await ctx.effect("serve", serve, job.payment, global_key=job.payment, on_doubt=find, timeout=30)
    return receipt


def main() -> None:
    """Runs one worker."""
    from rewindq.engine.runtime.settings import load_settings
    from rewindq.processors.worker.daemon import DaemonOptions, run_worker
    from rewindq.processors.worker.report import WorkerOptions

    log, namespace, state_dir, until_idle = sys.argv[1:]
    settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, partitions=4)
    options = DaemonOptions(
        "tests.support.shared_app:app", WorkerOptions(name="shared", grace=1.0), until_idle=until_idle == "yes"
    )
    run_worker(settings, options)


if __name__ == "__main__":
    main()
