"""A dry-run takes every answer from the recording, and names where the code leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import PARTITIONS, Replay, cut, deployment, dry_run, record, submit, work

from rewindq import DELETE, App, Context, FailureClass, Retry
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.effects.errors import EffectRejected
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.runtime.deployment import Deployment

CALLS: list[str] = []


class Order(BaseModel):
    order_id: str
    amount: int = 5


class Declined(Exception):
    """The gateway says no."""


@pytest.fixture(autouse=True)
def _ledger() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


def call(name: str, *args: Any) -> dict[str, Any]:
    CALLS.append(name)
    return {"done": name, "args": list(args)}


async def check_stock(ctx: Context, job: Order, name: str = "check_stock") -> None:
    await ctx.effect(name, call, name, job.order_id, key="stock")


async def charge(ctx: Context, job: Order, amount: int | None = None) -> None:
    await ctx.effect("charge", call, "charge", amount or job.amount, key="charge")


async def notify(ctx: Context, job: Order, times: int = 1) -> None:
    for number in range(times):
        await ctx.effect("notify", call, "notify", job.order_id, key=f"notify-{number}")


def app_of(handler: Any, **options: Any) -> App:
    app = App("test")
    app.job("order", resource="order:{order_id}", **options)(handler)
    return app


async def original(ctx: Context, job: Order) -> dict[str, str]:
    order = await ctx.load("order", job.order_id)
    await check_stock(ctx, job)
    await charge(ctx, job)
    await notify(ctx, job)
    ctx.decide("big", job.amount > 3, amount=job.amount)
    await ctx.save("order", job.order_id, {"status": "paid"}, expected=order.version)
    return {"id": str(ctx.uuid()), "at": ctx.now().isoformat()}


@pytest.fixture
def recorded(place: Deployment) -> Iterator[JobPast]:
    with record(place, app_of(original), "order", {"order_id": "o1"}, "order:o1") as job:
        assert job.recording.attempt().outcome == "succeeded"
        assert CALLS == ["check_stock", "charge", "notify"]
        CALLS.clear()
        yield job


def rerun(place: Deployment, job: JobPast, handler: Any) -> Replay:
    return dry_run(place, job, app_of(handler))


def test_the_same_code_takes_the_same_path(place: Deployment, recorded: JobPast) -> None:
    replay = rerun(place, recorded, original)
    assert (replay.outcome, replay.divergences, CALLS) == ("succeeded", [], [])


def test_a_renamed_step_gets_no_other_steps_answer(place: Deployment, recorded: JobPast) -> None:
    async def renamed(ctx: Context, job: Order) -> None:
        await ctx.load("order", job.order_id)
        await check_stock(ctx, job, "verify_stock")

    replay = rerun(place, recorded, renamed)
    first = replay.divergences[0]
    assert (first["kind"], first["step"], first["index"]) == ("unrecorded_step", "verify_stock", 1)
    assert first["expected"]["step"] == "check_stock"
    assert first["got"]["digest"] != first["expected"]["digest"]
    assert "blocked" in (replay.reason or "")
    assert CALLS == []


def test_two_steps_that_changed_places_are_named_and_answered(place: Deployment, recorded: JobPast) -> None:
    async def swapped(ctx: Context, job: Order) -> dict[str, str]:
        order = await ctx.load("order", job.order_id)
        await charge(ctx, job)
        await check_stock(ctx, job)
        await notify(ctx, job)
        ctx.decide("big", job.amount > 3, amount=job.amount)
        await ctx.save("order", job.order_id, {"status": "paid"}, expected=order.version)
        return {"id": str(ctx.uuid()), "at": ctx.now().isoformat()}

    replay = rerun(place, recorded, swapped)
    assert [one["kind"] for one in replay.divergences] == ["order_differs"]
    assert replay.divergences[0]["step"] in ("check_stock", "charge")
    assert replay.outcome == "succeeded"


def test_an_added_step_is_blocked_or_stubbed(place: Deployment, recorded: JobPast) -> None:
    async def added(ctx: Context, job: Order) -> dict[str, str]:
        await ctx.effect("fraud", call, "fraud", key="fraud")
        return await original(ctx, job)

    blocked = rerun(place, recorded, added)
    assert blocked.kinds[0] == ("unrecorded_step", "fraud")
    assert blocked.outcome == "failed"
    app = app_of(added)
    app.stub("fraud")(lambda name: {"stubbed": name})
    stubbed = dry_run(place, recorded, app)
    assert stubbed.kinds == [("unrecorded_step", "fraud")]
    assert (stubbed.outcome, CALLS) == ("succeeded", [])


def test_a_removed_step_is_missing(place: Deployment, recorded: JobPast) -> None:
    async def removed(ctx: Context, job: Order) -> dict[str, str]:
        order = await ctx.load("order", job.order_id)
        await check_stock(ctx, job)
        await charge(ctx, job)
        ctx.decide("big", job.amount > 3, amount=job.amount)
        await ctx.save("order", job.order_id, {"status": "paid"}, expected=order.version)
        return {"id": str(ctx.uuid()), "at": ctx.now().isoformat()}

    replay = rerun(place, recorded, removed)
    assert replay.kinds == [("missing_step", "notify")]
    assert replay.divergences[0]["index"] == 3


def test_another_request_gets_no_recorded_answer(place: Deployment, recorded: JobPast) -> None:
    async def dearer(ctx: Context, job: Order) -> None:
        await ctx.load("order", job.order_id)
        await check_stock(ctx, job)
        await charge(ctx, job, amount=99)

    replay = rerun(place, recorded, dearer)
    first = replay.divergences[0]
    assert (first["kind"], first["step"], first["index"]) == ("request_differs", "charge", 2)
    assert first["expected"]["request"]["args"] == ["charge", 5]
    assert first["got"]["request"]["args"] == ["charge", 99]
    assert CALLS == []


def test_one_more_round_is_a_step_of_its_own(place: Deployment, recorded: JobPast) -> None:
    async def twice(ctx: Context, job: Order) -> None:
        await ctx.load("order", job.order_id)
        await check_stock(ctx, job)
        await charge(ctx, job)
        await notify(ctx, job, times=2)

    replay = rerun(place, recorded, twice)
    first = replay.divergences[0]
    assert (first["kind"], first["step"], first["occurrence"]) == ("unrecorded_step", "notify", 2)


def test_decision_write_and_result_are_compared(place: Deployment, recorded: JobPast) -> None:
    async def changed(ctx: Context, job: Order) -> dict[str, str]:
        order = await ctx.load("order", job.order_id)
        await check_stock(ctx, job)
        await charge(ctx, job)
        await notify(ctx, job)
        ctx.decide("big", job.amount > 30, amount=job.amount)
        await ctx.save("order", job.order_id, {"status": "open"}, expected=order.version)
        again = await ctx.load("order", job.order_id)
        assert again["status"] == "open"
        return {"id": str(ctx.uuid()), "at": "never"}

    replay = rerun(place, recorded, changed)
    assert sorted(replay.kinds, key=str) == sorted(
        [
            ("decision_differs", "big"),
            ("write_differs", "save order:o1"),
            ("unrecorded_step", "load order:o1"),
            ("missing_step", "now"),
            ("result_differs", None),
        ],
        key=str,
    )


def test_a_recorded_error_drives_the_same_branch(place: Deployment) -> None:
    def decline(amount: int) -> None:
        CALLS.append("decline")
        raise Declined(f"insufficient funds for {amount}")

    async def handler(ctx: Context, job: Order) -> str:
        try:
            await ctx.effect("charge", decline, job.amount, key="charge")
        except EffectRejected as error:
            ctx.note("told", text=str(error), cause=type(error.__cause__).__name__)
            declined = isinstance(error.__cause__, Declined)
            report = f"{type(error).__name__}|{error}|{error.failure_class}|{declined}"
            await ctx.effect("report", call, report, key="report")
            return report
        return "paid"

    app = app_of(handler)
    app.classify(Declined, FailureClass.DEPENDENCY)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        CALLS.clear()
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences, CALLS) == ("succeeded", [], [])


def test_an_error_class_that_is_gone_is_named(place: Deployment) -> None:
    def doomed() -> type[Exception]:
        class Doomed(Exception):
            pass

        return Doomed

    kind = doomed()

    def fail() -> None:
        raise kind("no more")

    async def handler(ctx: Context, job: Order) -> str:
        try:
            await ctx.effect("charge", fail, key="charge")
        except EffectRejected as error:
            return str(error)
        return "paid"

    with record(place, app_of(handler), "order", {"order_id": "o1"}, "order:o1") as job:
        kind.__qualname__ = "Renamed"
        replay = rerun(place, job, handler)
    assert replay.outcome == "succeeded"
    assert replay.kinds == [("error_class_missing", "charge")]


def test_an_uncaught_error_is_the_recorded_one(place: Deployment) -> None:
    def decline() -> None:
        raise Declined("no")

    async def handler(ctx: Context, job: Order) -> None:
        await ctx.effect("charge", decline, key="charge")

    async def other(ctx: Context, job: Order) -> None:
        raise ValueError("something else")

    options = {"retry": Retry(max_attempts=1)}
    with record(place, app_of(handler, **options), "order", {"order_id": "o1"}, "order:o1") as job:
        assert job.recording.attempt().outcome == "failed"
        same = dry_run(place, job, app_of(handler, **options))
        assert (same.outcome, same.failed_step, same.divergences) == ("failed", "charge", [])
        changed = dry_run(place, job, app_of(other, **options))
    assert ("error_differs", None) in changed.kinds


def test_a_refused_write_is_refused_again(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> str:
        order = await ctx.load("order", job.order_id)
        if ctx.attempt == 1:
            await ctx.save("order", job.order_id, {"by": "first"}, expected=order.version)
            await ctx.save("order", job.order_id, {"by": "stale"}, expected=order.version)
        return f"{order.version}"

    with record(place, app_of(handler), "order", {"order_id": "o1"}, "order:o1") as job:
        first = dry_run(place, job, app_of(handler), 1)
        assert (first.outcome, first.failed_step, first.divergences) == ("failed", "save order:o1#2", [])
        second = dry_run(place, job, app_of(handler), 2)
    assert (second.outcome, second.divergences) == ("succeeded", [])


def test_plain_functions_leases_caches_and_children_replay(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> Any:
        async with ctx.lease("stock:1", ttl=5) as lease:
            rate = await ctx.cache("fx", "IDR")
            child = await ctx.enqueue("order", {"order_id": "o2"}, delay=3600)
            await ctx.save("order", job.order_id, {"a": 1, "b": rate}, expected=0)
            await ctx.save("order", job.order_id, {"a": DELETE}, expected=1)
            return [lease.token, rate, child, ctx.random.random()]

    def blocking(ctx: Any, job: Order) -> Any:
        with ctx.lease("stock:1", ttl=5) as lease:
            rate = ctx.cache("fx", "IDR")
            child = ctx.enqueue("order", {"order_id": "o2"}, delay=3600)
            ctx.save("order", job.order_id, {"a": 1, "b": rate}, expected=0)
            ctx.save("order", job.order_id, {"a": DELETE}, expected=1)
            return [lease.token, rate, child, ctx.random.random()]

    blocking.__annotations__["ctx"] = Context
    reads: list[str] = []

    def fx(key: str) -> tuple[int, str]:
        reads.append(key)
        return 7, "v1"

    live = app_of(handler)
    live.cache_source("fx", fx)
    key = next(f"order:o{n}" for n in range(99) if _home(f"order:o{n}") == _home("stock:1"))
    submit(place, "order", {"order_id": key.partition(":")[2]}, "job-1", key)
    work(place, live, until=lambda report: report.processed >= 1)
    with open_job(place, "job-1") as job:
        reads.clear()
        for again in (handler, blocking):
            app = app_of(again)
            app.cache_source("fx", fx)
            replay = dry_run(place, job, app)
            assert (replay.outcome, replay.divergences, reads) == ("succeeded", [], [])


def _home(key: str) -> int:
    return partition_for(key.encode(), PARTITIONS)


def test_steps_side_by_side_have_no_order(place: Deployment) -> None:
    async def slow(name: str, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return name

    async def twice(ctx: Context, name: str, seconds: float) -> None:
        for at in ("first", "second"):
            await ctx.effect(f"{name} {at}", slow, name, seconds, key=f"{name}-{at}")

    async def handler(ctx: Context, job: Order) -> None:
        await asyncio.gather(twice(ctx, "slow", 0.1), twice(ctx, "quick", 0))

    with record(place, app_of(handler), "order", {"order_id": "o1"}, "order:o1") as job:
        steps = [step.name for step in job.recording.attempt().steps]
        assert steps.index("quick second") < steps.index("slow second")
        replay = rerun(place, job, handler)
    assert (replay.outcome, replay.divergences) == ("succeeded", [])


def test_a_trace_cut_anywhere_ends_there(place: Deployment, recorded: JobPast) -> None:
    attempt = recorded.recording.attempt()
    assert attempt.started is not None and attempt.end is not None
    borders = range(attempt.started.seq + 1, attempt.end.seq + 1)
    assert len(borders) > 8
    for seq in borders:
        short = cut(recorded.recording, seq)
        replay = dry_run(place, recorded, app_of(original), recording=short)
        assert (seq, replay.divergences) == (seq, [])
        assert replay.outcome == "unfinished"
        assert (replay.reason or "").startswith("ends here: ")
        assert short.attempt().outcome == "unfinished"
    half = attempt.by_name["charge"].events[0]
    short = cut(recorded.recording, half.seq + 1)
    assert short.attempt().ends_here == "ends here: step charge started, outcome unknown"
    assert dry_run(place, recorded, app_of(original), recording=short).reason == short.attempt().ends_here
    assert CALLS == []


def test_a_cut_trace_of_steps_side_by_side_ends_there(place: Deployment) -> None:
    async def twice(ctx: Context, name: str, seconds: float) -> None:
        for at in ("first", "second"):
            await ctx.effect(f"{name} {at}", asyncio.sleep, seconds, key=f"{name}-{at}")

    async def handler(ctx: Context, job: Order) -> None:
        await asyncio.gather(twice(ctx, "slow", 0.1), twice(ctx, "quick", 0))

    with record(place, app_of(handler), "order", {"order_id": "o1"}, "order:o1") as job:
        attempt = job.recording.attempt()
        assert attempt.started is not None and attempt.end is not None
        for seq in range(attempt.started.seq + 1, attempt.end.seq + 1):
            replay = dry_run(place, job, app_of(handler), recording=cut(job.recording, seq))
            assert (seq, replay.outcome, replay.divergences) == (seq, "unfinished", [])


def test_a_cut_trace_still_shows_other_code(place: Deployment, recorded: JobPast) -> None:
    async def renamed(ctx: Context, job: Order) -> None:
        await ctx.load("order", job.order_id)
        await check_stock(ctx, job, "verify_stock")

    attempt = recorded.recording.attempt()
    short = cut(recorded.recording, attempt.by_name["notify"].first)
    replay = dry_run(place, recorded, app_of(renamed), recording=short)
    assert replay.kinds[0] == ("unrecorded_step", "verify_stock")


def test_cache_bypass_reads_the_source_of_that_moment(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> Any:
        order = await ctx.load("order", job.order_id)
        await ctx.save("order", job.order_id, {"points": 10}, expected=order.version)
        cached = await ctx.cache("points", f"order:{job.order_id}")
        await ctx.save("order", job.order_id, {"points": 20}, expected=order.version + 1)
        return cached

    app = app_of(handler)
    app.cache_source("points", lambda key: (3, "stale"))
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        recorded = dry_run(place, job, app)
        assert recorded.divergences == []
        bypassed = dry_run(place, job, app, bypass=True)
    assert bypassed.kinds == [("result_differs", None)]
    assert (bypassed.divergences[0]["expected"], bypassed.divergences[0]["got"]) == (3, 10)
