"""A job that kills its workers is parked after so many deaths, and no job that died beside it is parked for it.

Pinned down: `AttemptStarted` stands in the log before a handler runs, so a death counts (`processors/worker/revive.py`,
`engine/core/decide.py: decide_lost`); whoever has one loss left runs alone (`processors/worker/alone.py`). A job whose
losses are counted in one process without company is in `tests/worker/test_failures.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.payments import wait_until
from tests.support.rough_app import Job, submit
from tests.support.shop import Shop
from tests.support.slow_app import calls
from tests.support.workers import Running, records

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.trace import job_detail
from rewindq.processors.worker.worker import Worker


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Gone(Exception):
    """Stands for a process that is gone without an orderly end."""


class Company:
    """Jobs in one process with a poison job, which dies as soon as all run. While `together`, none of them ends."""

    def __init__(self, folder: Path, bystanders: int, max_lost: int = 3) -> None:
        self.app = App("t")
        self.together = True
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.dead = asyncio.Event()
        self.started_beside = False
        self.all = {"p", *(f"b{n}" for n in range(bystanders))}
        self.app.job("poison", resource="item:{n}")(self.poison)
        self.app.job("bystander", resource="item:{n}", max_lost=max_lost)(self.bystander)
        self.shop = Shop(folder, self.app, partitions=1)
        for n in range(bystanders):
            self.shop.submit("bystander", {"n": n}, f"b{n}", key=f"item:{n}")
        self.shop.submit("poison", {"n": 90}, "p", key="item:90", priority=-5)  # the others go first

    async def poison(self, ctx: Context, job: Item) -> None:
        self._note(ctx)
        while self.together and not self.running >= self.all:
            await asyncio.sleep(0.01)
        late = f"late{ctx.attempt}"
        await ctx.enqueue("bystander", {"n": 91 + ctx.attempt}, key=f"item:{91 + ctx.attempt}", job_id=late)
        while "JobAccepted" not in self.shop.names(late):
            await asyncio.sleep(0.01)
        # Where there is room, a job starts in the turn that accepts it.
        self.started_beside = "AttemptStarted" in self.shop.names(late)
        self.dead.set()
        await asyncio.Event().wait()

    async def bystander(self, ctx: Context, job: Item) -> None:
        self._note(ctx)
        while self.together:
            await asyncio.sleep(0.01)
        self.running.discard(ctx.job_id)

    def _note(self, ctx: Context) -> None:
        self.running.add(ctx.job_id)
        for job_id in self.running:
            self.beside[job_id] = set(self.running)

    def die_once(self) -> None:
        """Runs a worker until the poison job has killed it."""
        self.dead = asyncio.Event()

        async def die(worker: Worker) -> None:
            await self.dead.wait()
            worker.failure = Gone()
            worker.wake()

        with pytest.raises(Gone):
            self.shop.run(until=lambda report: False, during=die)
        self.running.clear()


def test_only_the_job_that_died_alone_is_parked(tmp_path: Path) -> None:
    company = Company(tmp_path, bystanders=3)
    for together in (True, True, False):
        company.together = together
        company.die_once()
        assert company.started_beside is together, "nothing starts beside a job whose last chance it is"
    assert company.beside["p"] == {"p"}
    company.shop.run()
    job = company.shop.job("p")
    assert (job.status, job.attempt, job.lost) == (s.INVESTIGATION, 3, 3)
    assert [company.shop.job(f"b{n}").status for n in range(3)] == [s.SUCCEEDED] * 3
    assert [company.shop.job(f"late{n}").status for n in (1, 2, 3)] == [s.SUCCEEDED] * 3
    company.shop.run()
    assert company.shop.names("p").count("AttemptStarted") == 3


@pytest.mark.parametrize("end", ["cancelled", "quarantined"])
def test_a_job_that_waits_to_run_alone_can_be_stopped(tmp_path: Path, end: str) -> None:
    company = Company(tmp_path, bystanders=2, max_lost=9)
    for _ in range(2):
        company.die_once()

    async def meddle(worker: Worker) -> None:
        while not worker._attempts.alone.waits("p"):
            await asyncio.sleep(0.01)
        given = ("c1", "because", "ann")
        body = e.CancelCommand(*given) if end == "cancelled" else e.QuarantineCommand(*given, "poison")
        company.shop.input(company.shop.topics.commands, "p", body, "p")
        while worker._attempts.alone.waits("p"):
            await asyncio.sleep(0.01)
        company.together = False

    company.shop.run(during=meddle)
    wanted = s.CANCELLED if end == "cancelled" else s.WAITING
    assert (company.shop.job("p").status, company.shop.job("p").attempt) == (wanted, 2)
    assert [company.shop.job(f"b{n}").status for n in range(2)] == [s.SUCCEEDED] * 2


@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_killing_job_starts_three_times_wherever_it_lands(settings: Settings, tmp_path: Path) -> None:
    ledger, number = tmp_path / "ledger", 8
    poison = Job("kill", "p", {"thing": "0", "number": 100}, "thing:0")
    payloads = [{"thing": str(n), "number": n, "seconds": 0.3} for n in range(number)]
    jobs = [Job("bystander", f"b{n}", payload, f"thing:{n}") for n, payload in enumerate(payloads)]
    submit(settings, [*jobs[:4], poison, *jobs[4:]])
    options = ("--app", "tests.support.rough_app:app", "--concurrency", "4", "--name", "w")
    workers = [Running(settings, ledger, *options) for _ in range(4)]
    try:
        wait_until(lambda: _ended(settings) == {"JobSucceeded": number, "MovedToInvestigation": 1}, "all has ended", 60)
        left = [worker for worker in workers if worker.process.poll() is None]
        assert len(left) == 1
        left[0].stop()
    finally:
        for worker in workers:
            worker.kill()
    with Deployment.open(settings) as deployment, Past(deployment) as past:
        attempts = job_detail(past, "p")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["lost"] * 3
    assert len({attempt["worker"] for attempt in attempts}) == 3
    assert Counter(call.key for call in calls(ledger)) == Counter(
        ["thing:0/serve/serve", *(f"thing:{n}/serve/serve-{n}" for n in range(number))]
    )


def _ended(settings: Settings) -> dict[str, int]:
    bodies = [event.body for record in records(settings) for event in record.events]
    return dict(Counter(type(b).__name__ for b in bodies if isinstance(b, e.JobSucceeded | e.MovedToInvestigation)))
