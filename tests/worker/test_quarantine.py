"""A quarantined job type in a worker: nothing of it starts, nothing is lost, and it goes on where it stood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.ports.log import Record
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.quarantines import NotQuarantined
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import worker as worker_module
from rewindq.processors.worker.inbox import Inbox
from rewindq.processors.worker.worker import Worker


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Line:
    """An app of two types that write down what ran, in order."""

    def __init__(self) -> None:
        self.app = App("t")
        self.ran: list[str] = []
        self.failing = False

        @self.app.job(retry=Retry(max_attempts=5, base=0.01, cap=0.01))
        async def charge(ctx: Context, job: Item) -> None:
            self.ran.append(ctx.job_id)
            if self.failing:
                raise ConnectionError("down")

        @self.app.job()
        async def other(ctx: Context, job: Item) -> None:
            self.ran.append(ctx.job_id)


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def client(shop: Shop) -> Client:
    return Client(deployment=shop.deployment)


def quarantine(shop: Shop, kind: str = "charge", timeout: float = 0) -> Any:
    with client(shop) as one:
        return one.quarantine(kind, "charges twice", "ann", timeout)


def lift(shop: Shop, timeout: float = 0) -> Any:
    with client(shop) as one:
        return one.lift_quarantine("charge", "mended", "bob", timeout)


def status(shop: Shop, job_id: str) -> tuple[str, str | None]:
    with client(shop) as one:
        job = one.status(job_id)
        return job["status"], job["held"]


def test_it_holds_on_every_partition_before_anything_starts(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app, partitions=3)
    jobs = [f"c{n}" for n in range(12)]
    for job_id in jobs:
        shop.submit("charge", {}, job_id)
    shop.submit("other", {}, "o")
    outcome = quarantine(shop)
    assert (outcome.recorded, outcome.waiting) == ((), (0, 1, 2))
    assert status(shop, "c1") == (s.WAITING, "type quarantined: charges twice"), "a queued command counts"
    report = shop.run()
    assert (line.ran, report.succeeded, report.held) == (["o"], 1, 12)
    assert {shop.job(job_id).status for job_id in jobs} == {s.WAITING}
    with client(shop) as one:
        (listed,) = one.quarantines()
    assert (listed["type"], listed["held"], listed["recorded"], listed["queued"]) == ("charge", 12, [0, 1, 2], [])
    assert (listed["by"], listed["reason"]) == ("ann", "charges twice")


def test_a_new_owner_holds_before_it_starts_what_waits_already(tmp_path: Path) -> None:
    line = Line()
    blocked: list[int] = []

    @line.app.job()
    async def block(ctx: Context, job: Item) -> None:
        blocked.append(ctx.attempt)
        await asyncio.Event().wait()

    shop = Shop(tmp_path, line.app)
    shop.submit("block", {}, "b", priority=9)
    for n in range(3):
        shop.submit("charge", {}, f"c{n}")

    async def accepted(worker: Worker) -> None:
        await until(lambda: blocked == [1] and worker._owners[0].states.counts.get(s.WAITING) == 3)
        worker.stop()

    shop.run(lambda report: False, accepted, concurrency=1, grace=0)
    quarantine(shop)

    async def started(worker: Worker) -> None:
        await until(lambda: blocked == [1, 2] and worker.report.held == 3)
        worker.stop()

    shop.run(lambda report: False, started, grace=0)
    assert line.ran == []
    assert verify(shop.deployment)["violations"] == []


def test_what_was_accepted_in_the_turn_of_its_quarantine_and_lift_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app)
    take = Inbox.take
    taken: list[Record] = []

    def all_at_once(inbox: Inbox, limit: int, room: int) -> list[Record]:
        if not taken and len(inbox._records) + len(inbox._urgent) < 3:
            return []
        taken.extend(found := sorted(take(inbox, limit, room), key=lambda record: record.topic != shop.topics.jobs))
        return found

    monkeypatch.setattr(Inbox, "take", all_at_once)
    shop.submit("charge", {}, "c")
    for command in (e.QuarantineCommand("c1", "r", "ann", "charge"), e.LiftCommand("c2", "r", "ann", "charge")):
        shop.input(shop.topics.commands, f"quarantine-{command.command_id}", command, "", 0)
    monkeypatch.setattr("rewindq.processors.worker.takeover.queued_commands", lambda *place: [])
    shop.run()
    decided = [type(body).__name__ for body in shop.bodies() if not isinstance(body, e.PartitionTaken)]
    assert decided[:3] == ["JobAccepted", "QuarantineAdded", "QuarantineLifted"]
    assert line.ran == ["c"]


def test_lifting_runs_what_was_held_in_its_old_order(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app)
    quarantine(shop)
    for n, priority in enumerate((0, 5, -5, 5)):
        shop.submit("charge", {}, f"c{n}", priority=priority)
    shop.run()

    async def lifted(worker: Worker) -> None:
        await until(lambda: worker.report.idle)
        outcome = await asyncio.to_thread(lift, shop, 10)
        assert (outcome.recorded, outcome.waiting) == ((0,), ())

    report = shop.run(lambda report: report.succeeded == 4, lifted, concurrency=1)
    assert (line.ran, report.held) == (["c1", "c3", "c0", "c2"], 0)
    assert status(shop, "c2") == (s.SUCCEEDED, None)
    assert verify(shop.deployment)["violations"] == []


def test_a_running_attempt_finishes_and_its_retry_is_held(tmp_path: Path) -> None:
    line = Line()
    app = line.app
    entered, go = asyncio.Event(), asyncio.Event()

    @app.job(retry=Retry(max_attempts=5, base=0.01, cap=0.01))
    async def slow(ctx: Context, job: Item) -> None:
        line.ran.append(f"{ctx.job_id}.{ctx.attempt}")
        entered.set()
        await go.wait()
        if ctx.attempt == 1 and ctx.job_id == "bad":
            raise ConnectionError("down")

    shop = Shop(tmp_path, app)
    for job_id in ("bad", "good"):
        shop.submit("slow", {}, job_id)

    async def held(worker: Worker) -> None:
        await entered.wait()
        await asyncio.to_thread(quarantine, shop, "slow", 10)
        go.set()
        await until(lambda: worker.report.idle)

    report = shop.run(during=held)
    assert (sorted(line.ran), report.succeeded, report.held) == (["bad.1", "good.1"], 1, 1)
    assert status(shop, "bad") == (s.RETRYING, "type quarantined: charges twice")
    with client(shop) as one:
        one.lift_quarantine("slow", "mended")
    shop.run()
    assert shop.job("bad").status == s.SUCCEEDED


def test_an_overdue_retry_is_back_when_it_is_lifted_by_the_worker_that_held_it(tmp_path: Path) -> None:
    line = Line()
    line.failing = True
    shop = Shop(tmp_path, line.app)
    shop.submit("charge", {}, "c")

    async def held(worker: Worker) -> None:
        await until(lambda: bool(line.ran))
        await asyncio.to_thread(quarantine, shop, "charge", 10)
        await until(lambda: worker.report.idle)
        line.failing = False
        await asyncio.to_thread(lift, shop, 10)

    shop.run(lambda report: report.succeeded == 1, held)
    assert shop.job("c").status == s.SUCCEEDED
    assert verify(shop.deployment)["violations"] == []


def test_a_job_sent_back_by_an_operator_is_accepted_and_held(tmp_path: Path) -> None:
    line = Line()
    app = line.app

    @app.job(retry=Retry(max_attempts=1))
    async def broken(ctx: Context, job: Item) -> None:
        raise ValueError("no")

    shop = Shop(tmp_path, app)
    shop.submit("broken", {}, "b")
    shop.run()
    assert shop.job("b").status == s.INVESTIGATION
    quarantine(shop, "broken")
    with client(shop) as one:
        one.retry("b", "try again")
    shop.run()
    assert status(shop, "b") == (s.WAITING, "type quarantined: charges twice")
    assert shop.names("b")[-1] == "RetryRequested"


def test_a_delayed_job_of_a_held_type_does_not_keep_a_worker_from_being_idle(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app)
    quarantine(shop)
    shop.submit("charge", {}, "later", due=shop.deployment.clock.now_us() + 3600 * 1_000_000)
    assert shop.run().held == 1
    assert shop.job("later").status == s.DELAYED


def test_held_jobs_can_be_cancelled(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app)
    quarantine(shop)
    shop.submit("charge", {}, "c")
    shop.run()
    with client(shop) as one:
        one.cancel("c", "not needed")
    assert shop.run().held == 0
    assert shop.job("c").status == s.CANCELLED


def test_the_commands_partitions_and_a_rebuild_agree(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app, partitions=2)
    for n in range(6):
        shop.submit("charge", {}, f"c{n}")
    outcome = quarantine(shop)
    shop.run()
    shop.run()  # takes the partitions over again: the commands are behind the offsets, the fold holds
    assert line.ran == []
    added = [body for body in shop.bodies() if isinstance(body, e.QuarantineAdded)]
    assert [body.command_id for body in added] == [outcome.command_id] * 2, "once a partition"
    found = verify(shop.deployment)
    assert found["violations"] == []
    assert found["digest"] == found["rebuilt_digest"]


def test_a_command_that_is_sent_twice_counts_once(tmp_path: Path) -> None:
    line = Line()
    shop = Shop(tmp_path, line.app)
    for command in (
        e.QuarantineCommand("c1", "r", "ann", "charge"),
        e.LiftCommand("c2", "r", "ann", "charge"),
        e.QuarantineCommand("c1", "r", "ann", "charge"),
    ):
        shop.input(shop.topics.commands, f"quarantine-{command.command_id}", command, "", 0)
    shop.submit("charge", {}, "c")
    shop.run()
    assert line.ran == ["c"]
    assert [type(b).__name__ for b in shop.bodies() if "Quarantine" in type(b).__name__] == [
        "QuarantineAdded",
        "QuarantineLifted",
    ]


def test_it_gets_through_when_waiting_jobs_have_filled_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "READY_MAX", 4)
    line = Line()
    app = line.app
    entered, go = asyncio.Event(), asyncio.Event()

    @app.job()
    async def block(ctx: Context, job: Item) -> None:
        entered.set()
        await go.wait()

    shop = Shop(tmp_path, app)
    shop.submit("block", {}, "b", priority=9)

    async def held(worker: Worker) -> None:
        await entered.wait()
        for n in range(20):
            await asyncio.to_thread(shop.submit, "charge", {}, f"c{n}")
        await until(lambda: 0 in worker._paused)
        outcome = await asyncio.to_thread(quarantine, shop, "charge", 5)
        assert outcome.waiting == ()
        go.set()

    report = shop.run(during=held, concurrency=1)
    assert (line.ran, report.held) == ([], 20)


def test_what_is_not_quarantined_cannot_be_lifted(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Line().app)
    with pytest.raises(NotQuarantined, match="type 'charge' is not quarantined"):
        lift(shop)


@pytest.mark.parametrize(("kind", "reason"), [("charge", " "), ("", "why"), ("a\nb", "why")])
def test_a_quarantine_needs_a_type_and_a_reason(tmp_path: Path, kind: str, reason: str) -> None:
    shop = Shop(tmp_path, Line().app)
    with client(shop) as one, pytest.raises(ValueError, match=r"reason|printable"):
        one.quarantine(kind, reason)
