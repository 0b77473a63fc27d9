"""A job that runs longer than any time-out stays with its worker while that lives; one that froze it acts once.

Pinned down: leases are renewed at a third of their TTL (`processors/worker/leases.py: _renew`), membership is kept by
the log's member beside the handlers, and an effect begins when `EffectStarted` is durable, which a worker that was
replaced cannot reach (`processors/worker/session.py: start`). A lease that is lost while its holder stands still is in
`tests/worker/test_other_partitions.py`.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.payments import wait_until
from tests.support.rough_app import Job, submit
from tests.support.shop import Shop
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.trace import job_detail
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.worker import Worker

TTL = 0.6
#: Longer than each log's own time-out in these tests, which is two seconds.
LONG = 2.6


class Item(BaseModel):
    """What a job works on."""

    n: int = 0


def test_a_long_job_keeps_its_lease_and_is_handed_out_once(settings: Settings, tmp_path: Path) -> None:
    app, lost = App("t"), []

    @app.job(resource="item:{n}")
    async def work(ctx: Context, job: Item) -> None:
        async with ctx.lease("item:7", ttl=TTL) as lease:
            await asyncio.sleep(LONG)
            lost.append(lease.lost)
            item = await ctx.load("item", 7)
            await ctx.save("item", 7, {"by": lease.token}, expected=item.version)

    log = open_log(settings.log)
    shop = Shop(tmp_path, app, log=log, partitions=1, namespace=settings.namespace)
    shop.submit("work", {"n": 1}, "long", key="item:1")

    async def two_workers() -> None:
        workers = [
            Worker(shop.deployment, LoadedApp(app, "tests:app", "c0de"), WorkerOptions(name=f"w{n}")) for n in range(2)
        ]

        def done(_: object) -> bool:
            if any(worker.report.succeeded for worker in workers):
                for worker in workers:
                    worker.stop()
            return False

        await asyncio.wait_for(asyncio.gather(*(worker.run(done) for worker in workers)), 60)

    asyncio.run(two_workers())
    names = Counter(shop.names("long"))
    assert (names["AttemptStarted"], names["JobSucceeded"], names["LeaseExpired"]) == (1, 1, 0)
    assert names["LeaseRenewed"] >= 4 and lost == [False]
    events = [event for record in shop.records("long") for event in record.events]
    told = [event for event in events if isinstance(event.body, e.LeaseAcquired | e.LeaseRenewed | e.LeaseReleased)]
    assert {event.fencing_token for event in told} == {1}
    log.close()


@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_job_that_froze_its_worker_for_long_acts_once(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit(settings, [Job("freeze", "f", {"thing": "1", "number": 1, "seconds": 5.0}, "thing:1")])
    options = ("--app", "tests.support.rough_app:app", "--name", "w", "--grace", "1")
    workers = [Running(settings, ledger, *options) for _ in range(2)]
    try:
        wait_until(lambda: event_counts(settings)["JobSucceeded"] == 1, "it has succeeded", 60)
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.end()
    finally:
        for worker in workers:
            worker.kill()
    with Deployment.open(settings) as deployment:
        assert verify(deployment)["violations"] == []
        with Past(deployment) as past:
            attempts = job_detail(past, "f")["attempts"]
    assert [call.key for call in calls(ledger)] == ["thing:1/serve/serve"]
    *before, last = attempts
    assert last["outcome"] == "succeeded"
    # Where the log's client keeps the membership without the interpreter, nothing is lost.
    if "sqlite" in settings.log:
        assert [attempt["outcome"] for attempt in before] == ["lost"]
        assert "no longer owns partition" in before[0]["failure"]["reason"]
    else:
        assert before == []
    assert [worker.process.returncode for worker in workers] == [0, 0]
