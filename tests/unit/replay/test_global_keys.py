"""Replays of jobs whose effects have global keys: the recording answers, and no other partition is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import PARTITIONS, cut, deployment, dry_run, fork, record, submit, work

from rewindq import App, Context, InDoubt, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.position import Position
from rewindq.engine.replay.diff import diff, fork_recording
from rewindq.engine.replay.points import HalfDone, check_half_done
from rewindq.engine.replay.recording import Attempt
from rewindq.engine.replay.replays import in_doubt
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.runtime.deployment import Deployment
from rewindq.processors.worker import claims as claims_module

HOME = partition_for(b"order:o1", PARTITIONS)
#: A key at home on the job's partition, and one at home elsewhere.
HERE, AWAY = (
    next(f"g{n}" for n in range(100) if (partition_for(f"g{n}".encode(), PARTITIONS) == HOME) is here)
    for here in (True, False)
)
OTHER = next(f"order:{n}" for n in range(100) if partition_for(f"order:{n}".encode(), PARTITIONS) != HOME)


class Order(BaseModel):
    order_id: str
    amount: int = 1


async def charge(amount: int) -> str:
    return f"receipt for {amount}"


def paying(shared: str, by: int = 0, stub: bool = False, function: Any = charge, **options: Any) -> App:
    app = App("test")

    @app.job("order", resource="order:{order_id}", retry=Retry(base=0.01, cap=0.02, max_attempts=20))
    async def pay(ctx: Context, job: Order) -> str:
        ctx.note("begin")
        receipt: str = await ctx.effect("charge", function, job.amount + by, global_key=shared, **options)
        ctx.note("end", receipt=receipt)
        return receipt

    if stub:
        app.stub("charge")(lambda amount: f"a stub's receipt for {amount}")
    return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


def began(job: JobPast, number: int | None = None) -> Attempt:
    attempt = job.recording.attempt(number)
    assert attempt.started is not None
    return attempt


def start_of(attempt: Attempt) -> int:
    assert attempt.started is not None
    return attempt.started.seq


@pytest.mark.parametrize("shared", [HERE, AWAY])
def test_the_recording_answers(place: Deployment, shared: str) -> None:
    with record(place, paying(shared), "order", {"order_id": "o1"}, "order:o1") as job:
        replay = dry_run(place, job, paying(shared))
        assert (replay.outcome, replay.divergences) == ("succeeded", [])
        other = dry_run(place, job, paying(shared, by=1))
        assert other.kinds[0] == ("request_differs", "charge")
        assert other.outcome == "failed" and "blocked" in (other.reason or "")
        step = began(job).by_name["charge"]
        assert (step.kind, in_doubt(began(job))) == ("effect", [])


@pytest.mark.parametrize("shared", [HERE, AWAY])
def test_another_jobs_answer_is_answered_again(place: Deployment, shared: str) -> None:
    submit(place, "order", {"order_id": OTHER.removeprefix("order:")}, "first", OTHER)
    work(place, paying(shared))
    with record(place, paying(shared), "order", {"order_id": "o1"}, "order:o1") as job:
        assert began(job).by_name["charge"].find(e.EffectSkipped) is not None
        replay = dry_run(place, job, paying(shared))
        assert (replay.outcome, replay.divergences) == ("succeeded", [])
        assert dry_run(place, job, paying(shared, by=1)).kinds[0] == ("request_differs", "charge")
        forked = fork(place, job, paying(shared), start_of(began(job)))
        assert (forked.outcome, forked.divergences) == ("succeeded", [])


@pytest.mark.parametrize("shared", [HERE, AWAY])
@pytest.mark.parametrize("before", ["begin", "charge", "end"])
def test_a_fork_takes_the_recorded_answer_or_the_stub_or_is_blocked(
    place: Deployment, shared: str, before: str
) -> None:
    with record(place, paying(shared), "order", {"order_id": "o1"}, "order:o1") as job:
        base = began(job).by_name[before].first
        replay = fork(place, job, paying(shared), base)
        assert (replay.outcome, replay.divergences) == ("succeeded", [])
        forked = fork_recording(job.recording, Position(job.past.partition, base), replay.records)
        compared = diff(job.recording, forked, 1, lambda key, field: None)
        assert all(row["same"] for row in compared["steps"])
        assert not replay.bodies(e.ClaimRequested, e.KeyClaimed)
        if before == "end":
            return
        stubbed = fork(place, job, paying(shared, by=1, stub=True), base)
        (succeeded,) = stubbed.bodies(e.EffectSucceeded)
        assert (stubbed.outcome, succeeded.evidence) == ("succeeded", "stub")
        assert "blocked" in (fork(place, job, paying(shared, by=1), base).reason or "")


def test_a_position_within_the_claim_or_the_call_is_half_done(place: Deployment) -> None:
    with record(place, paying(AWAY), "order", {"order_id": "o1"}, "order:o1") as job:
        attempt = began(job)
        step = attempt.by_name["charge"]
        for at in step.events[1:]:
            with pytest.raises(HalfDone):
                check_half_done(job.recording, attempt, at.seq)
        check_half_done(job.recording, attempt, step.first)
        assert step.done_at is not None
        check_half_done(job.recording, attempt, step.done_at + 1)


@pytest.mark.parametrize("shared", [HERE, AWAY])
def test_a_refused_claim_is_refused_again_and_is_no_call(
    place: Deployment, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first` makes the call until job-1 was refused."""
    monkeypatch.setattr(claims_module, "CLAIM_WAIT", 0.02)
    refused = asyncio.Event()

    async def until_refused(amount: int) -> str:
        submit(place, "order", {"order_id": "o1"}, "job-1", "order:o1")
        await refused.wait()
        return "receipt"

    app = App("test")

    @app.job("order", resource="order:{order_id}", retry=Retry(base=0.01, cap=0.02, max_attempts=20))
    async def pay(ctx: Context, job: Order) -> str:
        if ctx.job_id == "job-1" and ctx.attempt > 1:
            refused.set()
        receipt: str = await ctx.effect("charge", until_refused, job.amount, global_key=shared)
        return receipt

    submit(place, "order", {"order_id": OTHER.removeprefix("order:")}, "first", OTHER)
    work(place, app)
    with open_job(place, "job-1") as job:
        first, last = began(job, 1), began(job)
        assert first.outcome == "failed" and last.outcome == "succeeded"
        replay = dry_run(place, job, app, 1)
        assert (replay.outcome, replay.divergences, replay.failure_class) == ("failed", [], "concurrency")
        assert in_doubt(first) == []
        check_half_done(job.recording, last, start_of(last))
        forked = fork(place, job, app, start_of(last), last.number)
        assert (forked.outcome, forked.divergences) == ("succeeded", [])


@pytest.mark.parametrize("kind", [e.ClaimRequested, e.ClaimAnswered, e.EffectStarted])
def test_a_recording_that_ends_in_the_claim_or_the_call_says_so(place: Deployment, kind: type[e.Body]) -> None:
    with record(place, paying(AWAY), "order", {"order_id": "o1"}, "order:o1") as job:
        at = began(job).by_name["charge"].find(kind)
        assert at is not None
        replay = dry_run(place, job, paying(AWAY), recording=cut(job.recording, at.seq + 1))
        assert replay.outcome == "unfinished"
        assert "step charge started, outcome unknown" in (replay.reason or "")


def test_a_failed_lookup_fails_again(place: Deployment) -> None:
    async def silent(amount: int) -> str:
        raise TimeoutError("no answer")

    async def closed(amount: int) -> str:
        raise ConnectionError("the bank is closed")

    app = paying(AWAY, function=silent, on_doubt=closed)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        assert began(job, 2).outcome == "failed"
        replay = dry_run(place, job, app, 2)
        assert (replay.outcome, replay.divergences, replay.failure_class) == ("failed", [], "in_doubt")


@pytest.mark.parametrize("shared", [HERE, AWAY])
def test_a_refusal_that_the_handler_caught_is_raised_again(place: Deployment, shared: str) -> None:
    async def silent(amount: int) -> str:
        raise TimeoutError("no answer")

    app = App("test")

    @app.job("order", resource="order:{order_id}", retry=Retry(max_attempts=1))
    async def pay(ctx: Context, job: Order) -> str:
        try:
            receipt: str = await ctx.effect("charge", silent, job.amount, global_key=shared)
        except InDoubt as error:
            if ctx.job_id == "first":
                raise
            return ctx.decide("why", str(error))
        return receipt

    submit(place, "order", {"order_id": OTHER.removeprefix("order:")}, "first", OTHER)
    work(place, app)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        assert began(job).outcome == "succeeded"
        replay = dry_run(place, job, app)
        assert (replay.outcome, replay.divergences) == ("succeeded", [])
