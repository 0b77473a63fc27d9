"""Cancels: before the job was seen, of running handlers of every kind, and in the middle of a call."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.effects import Resolution
from rewindq.engine.runtime.verify import verify


class Item(BaseModel):
    """A small payload; its key decides where the job is at home."""

    n: int = 0
    home: str = "h"


CANCEL = e.CancelCommand("c1", "enough", "me")


class Ran:
    """A shop whose jobs note that they ran."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.jobs: list[str] = []
        app = App("t")

        @app.job()
        async def work(ctx: Context, job: Item) -> None:
            self.jobs.append(ctx.job_id)

        @app.job(key="{home}")
        async def homed(ctx: Context, job: Item) -> None:
            self.jobs.append(ctx.job_id)

        self.shop = Shop(folder, app, partitions=partitions)

    def close(self) -> None:
        checked = verify(self.shop.deployment)
        assert checked["ok"], checked["violations"]
        self.shop.deployment.close()


def on(shop: Shop, job_id: str, kind: type[e.Body]) -> list[Any]:
    return [body for body in shop.bodies(job_id) if isinstance(body, kind)]


@pytest.mark.parametrize("due", [None, 60_000_000])
def test_a_cancel_that_comes_before_its_job_is_carried_out(tmp_path: Path, due: int | None) -> None:
    ran = Ran(tmp_path)
    shop = ran.shop
    shop.input(shop.topics.commands, "a", CANCEL, "a")
    shop.run(until=lambda report: report.turns > 0 and report.idle)
    assert shop.names("a") == ["CancelKept"]
    # Another worker, which knows of it from the log alone.
    fields = {} if due is None else {"due": shop.deployment.clock.now_us() + due}
    shop.submit("work", {}, "a", **fields)
    shop.submit("work", {}, "b")
    shop.run()
    assert shop.names("a") == ["CancelKept", "JobAccepted", "JobCancelled"]
    (cancelled,) = on(shop, "a", e.JobCancelled)
    assert (cancelled.reason, cancelled.actor, cancelled.command_id) == ("enough", "me", "c1")
    assert (shop.job("a").status, shop.job("a").cancel_reason, ran.jobs) == (s.CANCELLED, "enough", ["b"])
    ran.close()


def test_a_job_that_is_submitted_and_cancelled_before_any_worker_runs_is_cancelled(tmp_path: Path) -> None:
    ran = Ran(tmp_path, partitions=2)
    shop = ran.shop
    for number in range(8):
        shop.submit("work", {}, f"j{number}")
    with Client(deployment=shop.deployment) as client:
        for number in range(8):
            assert client.cancel(f"j{number}", "ordered twice").state == "queued"
    shop.run()
    assert [shop.job(f"j{number}").status for number in range(8)] == [s.CANCELLED] * 8
    assert ran.jobs == []
    ran.close()


@pytest.mark.parametrize("first", ["submission", "cancel"])
def test_a_cancel_follows_its_job_to_its_home(tmp_path: Path, first: str) -> None:
    """A client without the app sends both to the partition of the job's id; the job is at home on another one."""
    ran = Ran(tmp_path, partitions=4)
    shop = ran.shop
    home = next(f"h{n}" for n in range(99) if partition_for(f"h{n}".encode(), 4) != partition_for(b"a", 4))
    if first == "submission":
        shop.submit("homed", {"home": home}, "a")
        shop.run()
        ran.jobs.clear()
        shop.submit("homed", {"home": home}, "b", key="a")  # at home where it is sent to: runs
        shop.input(shop.topics.commands, "a", CANCEL, "a")
        shop.run()
        (refused,) = on(shop, "a", e.CommandRefused)
        assert "succeeded already" in refused.reason
        assert ran.jobs == ["b"]
    else:
        shop.input(shop.topics.commands, "a", CANCEL, "a")
        shop.run(until=lambda report: report.turns > 0 and report.idle)
        shop.submit("homed", {"home": home}, "a")
        shop.run()
        assert (shop.job("a").status, ran.jobs) == (s.CANCELLED, [])
    ran.close()


def test_what_is_kept_is_bounded_and_what_goes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s, "KEPT_CANCELS_MAX", 3)
    ran = Ran(tmp_path)
    shop = ran.shop
    for number in range(5):
        command = e.CancelCommand(f"c{number}", "enough", "me")
        shop.input(shop.topics.commands, f"j{number}", command, f"j{number}")
    shop.run(until=lambda report: report.turns > 0 and report.idle)
    refused = [body for body in shop.bodies() if isinstance(body, e.CommandRefused)]
    assert [body.command_id for body in refused] == ["c0", "c1"]
    for number in range(5):
        shop.submit("work", {}, f"j{number}")
    shop.run()
    assert sorted(ran.jobs) == ["j0", "j1"]
    shop.input(shop.topics.commands, "j9", e.CancelCommand("c9", "enough", "me"), "j9")
    shop.run(until=lambda report: report.turns > 0 and report.idle)
    assert len([body for body in shop.bodies() if isinstance(body, e.CommandRefused)]) == 2
    ran.close()


def cancel_when(shop: Shop, ready: Any) -> Any:
    """Cancels job `a` once something holds, and ends the worker when the job has ended."""

    async def during(worker: Any) -> None:
        while not ready():
            await asyncio.sleep(0.01)
        shop.input(shop.topics.commands, "a", CANCEL, "a")

    return during


def test_a_plain_handler_is_told_at_its_next_call(tmp_path: Path) -> None:
    app = App("t")
    went_on, released, seen = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    def work(ctx, job: Item) -> None:  # type: ignore[no-untyped-def]
        went_on.set()
        released.wait(20)
        try:
            ctx.effect("call", calls.append, "x", key="k")
        finally:
            seen.set()

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def cancel(worker: Any) -> None:
        while not went_on.is_set():
            await asyncio.sleep(0.01)
        shop.input(shop.topics.commands, "a", CANCEL, "a")
        while "JobCancelled" not in shop.names("a"):
            await asyncio.sleep(0.01)
        released.set()
        while not seen.is_set():
            await asyncio.sleep(0.01)

    shop.run(during=cancel)
    assert (shop.job("a").status, shop.job("a").attempt, calls) == (s.CANCELLED, 1, [])
    assert shop.names("a") == ["JobAccepted", "AttemptStarted", "CancelRequested", "JobCancelled"]
    shop.deployment.close()


def test_a_handler_that_swallows_the_cancellation_still_does_nothing_more(tmp_path: Path) -> None:
    app = App("t")
    calls: list[str] = []
    steps: list[str] = []

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    async def work(ctx: Context, job: Item) -> None:
        steps.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("told")
        await ctx.effect("call", calls.append, "x", key="k")
        steps.append("never")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run(during=cancel_when(shop, lambda: steps))
    assert (shop.job("a").status, shop.job("a").attempt) == (s.CANCELLED, 1)
    assert (steps, calls) == (["began", "told"], [])
    shop.deployment.close()


def test_a_call_under_way_is_in_doubt_and_resolved_by_a_person(tmp_path: Path) -> None:
    app = App("t")
    calls: list[int] = []

    async def hang() -> None:
        calls.append(1)
        await asyncio.sleep(60)

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", hang, key="k", idempotent=True)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run(during=cancel_when(shop, lambda: calls))
    job = shop.job("a")
    assert (job.status, job.attempt, len(calls)) == (s.INVESTIGATION, 1, 1)
    assert job.failure is not None
    assert "cancelled (enough)" in job.failure.reason
    assert "rewindq effects resolve a/call/k" in job.failure.reason
    with Client(deployment=shop.deployment) as client:
        client.resolve("a/call/k", Resolution(False), "the gateway has nothing")
        client.cancel("a", "enough")
    shop.run()
    assert (shop.job("a").status, len(calls)) == (s.CANCELLED, 1)
    assert verify(shop.deployment)["ok"]
    shop.deployment.close()
