"""A worker without the handler: what it does not know waits for one that does, and costs nobody anything."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.past import FoundJob, JobFilter, Past
from rewindq.engine.runtime.trace import trace_shown
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.report import Report, WorkerOptions
from rewindq.processors.worker.worker import Worker


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Deploy:
    """Two versions of an app on one log: v2 has the type `new`, on a resource. `ran` names what ran."""

    def __init__(self, folder: Path, *, partitions: int = 4, wait: float = 600) -> None:
        self.ran: list[str] = []
        self.v1, self.v2 = App("v1"), App("v2")
        for app in (self.v1, self.v2):
            app.job("old")(self.old)
        self.v2.job("new", resource="item:{n}")(self.new)
        self.v2.job("free")(self.new_without_resource)
        self.shop = Shop(folder, self.v1, partitions=partitions, unknown_type_wait=wait)
        self.clock = Movable()
        self.shop.deployment.clock = self.clock

    def in_seconds(self, seconds: float) -> int:
        return self.clock.now_us() + int(seconds * 1e6)

    async def old(self, ctx: Context, job: Item) -> None:
        self.ran.append(ctx.job_id)

    async def new(self, ctx: Context, job: Item) -> None:
        item = await ctx.load("item", job.n)
        await ctx.save("item", job.n, {"jobs": item.get("jobs", 0) + 1}, expected=item.version)
        self.ran.append(ctx.job_id)

    async def new_without_resource(self, ctx: Context, job: Item) -> None:
        self.ran.append(ctx.job_id)

    def run(self, app: App) -> Report:
        self.shop.app = app
        return self.shop.run()

    def run_until(self, app: App, job_id: str, event: str) -> None:
        self.shop.app = app
        self.shop.run(until=lambda report: event in self.shop.names(job_id))

    def command(self, job_id: str, body: e.Body) -> None:
        with Past(self.shop.deployment) as past:
            self.shop.input(self.shop.topics.commands, job_id, body, job_id, past.find(job_id).partition)

    def found(self, job_id: str) -> FoundJob:
        with Past(self.shop.deployment) as past:
            return past.find(job_id)

    def verified(self) -> None:
        assert verify(self.shop.deployment)["violations"] == []


def test_a_rolling_deploy_loses_nothing_and_burns_no_attempt(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path)
    due = deploy.in_seconds(0.1)
    for n in range(50):
        deploy.shop.submit("new", {"n": n % 7}, f"new{n}", due=due if n % 10 == 0 else None)
        deploy.shop.submit("old", {"n": n}, f"old{n}")
    report = deploy.run(deploy.v1)

    assert report.idle
    assert (report.succeeded, report.failed, report.unknown) == (50, 0, 50)
    waiting = deploy.found("new1")
    assert (waiting.state.status, waiting.head.type) == (s.WAITING, "new")
    assert waiting.waits == "waits for a capable worker: its partition's has no 'new', it has: old"
    with Past(deploy.shop.deployment) as past:
        jobs, _ = past.jobs(JobFilter(type="new"))
    assert len(jobs) == 50
    deploy.verified()
    assert deploy.run(deploy.v1).unknown == 50

    report = deploy.run(deploy.v2)
    assert (report.succeeded, report.retried, report.unknown) == (50, 0, 0)
    states = [deploy.shop.job(f"new{n}") for n in range(50)]
    assert {(job.status, job.attempt) for job in states} == {(s.SUCCEEDED, 1)}
    assert [deploy.shop.aggregate(f"item:{n}").data["jobs"] for n in range(7)] == [8, 7, 7, 7, 7, 7, 7]
    deploy.verified()


def test_v2_joins_while_v1_runs_and_v1_leaves(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path)
    for n in range(20):
        deploy.shop.submit("new", {"n": n}, f"new{n}")
    made = deploy.shop.deployment
    old = Worker(made, LoadedApp(deploy.v1, "v1:app", "c1"), WorkerOptions(name="old"))
    new = Worker(made, LoadedApp(deploy.v2, "v2:app", "c2"), WorkerOptions(name="new"))

    async def roll() -> None:
        first = asyncio.create_task(old.run())
        while not (old.report.idle and old.report.unknown == 20):
            await asyncio.sleep(0.01)
        second = asyncio.create_task(new.run(lambda report: report.owned == 4 and report.idle))
        while new.report.owned < 1:
            await asyncio.sleep(0.01)
        old.stop()
        await asyncio.gather(first, second)

    asyncio.run(asyncio.wait_for(roll(), 30))
    assert sorted(deploy.ran) == sorted(f"new{n}" for n in range(20))
    assert {deploy.shop.job(f"new{n}").attempt for n in range(20)} == {1}
    deploy.verified()


def test_a_job_that_was_accepted_by_who_knew_it_waits_in_the_queue(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path)
    deploy.shop.submit("new", {"n": 1}, "later", due=deploy.in_seconds(60))
    deploy.run_until(deploy.v2, "later", "JobAccepted")
    assert deploy.shop.job("later").status == s.DELAYED
    deploy.clock.added = 61
    deploy.shop.submit("old", {}, "old")
    report = deploy.run(deploy.v1)

    assert (report.unknown, report.succeeded) == (1, 1)
    assert "capable worker" in (deploy.found("later").waits or "")
    assert deploy.run(deploy.v2).succeeded == 1
    assert deploy.shop.job("later").attempt == 1
    assert deploy.found("later").waits is None
    deploy.verified()


@pytest.mark.parametrize("known_once", [False, True])
def test_after_the_wait_it_is_parked_with_the_type_and_the_known_types(tmp_path: Path, known_once: bool) -> None:
    deploy = Deploy(tmp_path, partitions=1)
    deploy.shop.submit("new", {"n": 1}, "a", due=deploy.in_seconds(5000))
    if known_once:
        deploy.run_until(deploy.v2, "a", "JobAccepted")

    async def time_passes(worker: Worker) -> None:
        for added in (599, 1198, 4999):  # beyond the wait, and not yet due
            deploy.clock.added = added
            await passes(worker, 3)
            assert "MovedToInvestigation" not in deploy.shop.names("a")
        deploy.clock.added = 5001
        while not (worker.report.unknown == 1 and worker.report.idle):
            await passes(worker, 1)
        deploy.clock.added = 5001 + 601

    deploy.shop.app = deploy.v1
    deploy.shop.run(until=lambda report: "MovedToInvestigation" in deploy.shop.names("a"), during=time_passes)
    job = deploy.shop.job("a")
    assert (job.status, job.attempt) == (s.INVESTIGATION, 0)
    assert job.failure is not None
    assert "'new'" in job.failure.reason
    assert "app has: old" in job.failure.reason
    deploy.verified()


async def passes(worker: Worker, count: int) -> None:
    """Lets the worker's loop go round so many times at least."""
    while not worker.report.owned:
        await asyncio.sleep(0.005)
    for _ in range(count):
        worker.wake()
        while worker._wakeup.is_set():
            await asyncio.sleep(0.001)


def test_what_was_parked_is_run_without_rules_only_if_it_needs_none(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path, partitions=1, wait=0)
    deploy.shop.submit("new", {"n": 1}, "on a resource")
    deploy.shop.submit("free", {"n": 1}, "free")
    deploy.run(deploy.v1)
    for job_id in ("on a resource", "free"):
        deploy.command(job_id, e.RetryCommand(job_id, "v2 is here", "ann"))
    deploy.run(deploy.v2)

    assert deploy.ran == ["free"]
    failure = deploy.shop.job("on a resource").failure
    assert failure is not None
    assert "submit it under a new id" in failure.reason


def test_a_held_submission_is_cancelled_and_its_id_taken(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path, partitions=1)
    deploy.shop.submit("new", {"n": 1}, "a")
    deploy.shop.submit("new", {"n": 1}, "a")
    deploy.shop.submit("old", {"n": 2}, "a")
    deploy.run(deploy.v1)
    assert [type(body).__name__ for body in deploy.shop.bodies("a")] == [
        "SubmissionHeld",
        "SubmissionDuplicated",
        "SubmissionDuplicated",
    ]
    deploy.command("a", e.RetryCommand("r", "now", "ann"))
    deploy.command("a", e.CancelCommand("c", "not any more", "ann"))
    assert deploy.run(deploy.v1).unknown == 0

    assert deploy.shop.job("a").status == s.CANCELLED
    refused = [body for body in deploy.shop.bodies() if isinstance(body, e.CommandRefused)]
    assert [body.command for body in refused] == ["retry"]
    assert deploy.run(deploy.v2).succeeded == 0
    deploy.verified()


class Card(BaseModel):
    """A payload with a secret."""

    number: SecretStr


def test_a_secret_of_a_type_that_was_not_known_is_not_shown_by_its_hold(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path, partitions=1)

    @deploy.v2.job()
    async def pay(ctx: Context, job: Card) -> None: ...

    deploy.shop.submit("pay", {"number": "4000-1234-5678"}, "a")
    deploy.run(deploy.v1)
    deploy.run(deploy.v2)
    with Past(deploy.shop.deployment) as past:
        shown = trace_shown(past, "a")
    assert [event["type"] for event in shown["events"]][1:3] == ["SubmissionHeld", "SubmissionReleased"]
    assert "4000-1234-5678" not in str(shown)
    assert base64.b64encode(b"4000-1234")[:11].decode() not in str(shown)
    assert " bytes" in shown["events"][1]["body"]["original"]


def test_a_kept_cancel_ends_a_job_of_an_unknown_type(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path, partitions=1)
    deploy.shop.input(deploy.shop.topics.commands, "a", e.CancelCommand("c", "not any more", "ann"), "a", 0)
    deploy.run(deploy.v1)
    deploy.shop.submit("new", {"n": 1}, "a")
    assert deploy.run(deploy.v1).unknown == 0
    assert deploy.shop.job("a").status == s.CANCELLED
    deploy.verified()


def test_a_quarantine_of_an_unknown_type_takes_it_out_and_brings_it_back(tmp_path: Path) -> None:
    deploy = Deploy(tmp_path, partitions=1)
    deploy.shop.submit("new", {"n": 1}, "later", due=deploy.in_seconds(60))
    deploy.run_until(deploy.v2, "later", "JobAccepted")
    deploy.clock.added = 61
    assert deploy.run(deploy.v1).unknown == 1
    commands = deploy.shop.topics.commands
    deploy.shop.input(commands, "q", e.QuarantineCommand("q1", "odd", "ann", "new"), "q", 0)
    report = deploy.run(deploy.v1)
    assert (report.unknown, report.held) == (0, 1)
    deploy.shop.input(commands, "q", e.LiftCommand("q2", "fine", "ann", "new"), "q", 0)
    assert deploy.run(deploy.v1).unknown == 1
    assert deploy.run(deploy.v2).succeeded == 1
