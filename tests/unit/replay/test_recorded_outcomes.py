"""Outcomes that are neither a plain answer nor a plain error replay as they were seen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from tests.support.recorded import deployment, dry_run, fork, record, work

from rewindq import App, Context, InDoubt, Retry
from rewindq.engine.blobs.folder import FolderBlobs
from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.effects.errors import EffectConflict, LeaseUnavailable
from rewindq.engine.replay.replays import in_doubt, leases
from rewindq.engine.replay.source import open_job
from rewindq.engine.runtime.commands import append_command
from rewindq.engine.runtime.deployment import Deployment

CALLS: list[str] = []
ONCE = Retry(max_attempts=1)


class Order(BaseModel):
    order_id: str
    card: SecretStr = SecretStr("4711-0815")


@pytest.fixture(autouse=True)
def _ledger() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path, FolderBlobs(tmp_path / "blobs"), body_limit_bytes=256)
    yield found
    found.close()


def call(*args: Any) -> str:
    CALLS.append("call")
    return "done"


def app_of(handler: Any, **options: Any) -> App:
    app = App("test")
    app.job("order", resource="order:{order_id}", **options)(handler)
    return app


def live(place: Deployment, app: App, **payload: Any) -> Any:
    return record(place, app, "order", {"order_id": "o1", **payload}, "order:o1")


def test_an_effect_in_doubt_is_in_doubt_again(place: Deployment) -> None:
    def hang() -> None:
        raise TimeoutError("no answer")

    async def handler(ctx: Context, job: Order) -> str:
        try:
            await ctx.effect("charge", hang, key="charge")
        except InDoubt as error:
            ctx.decide("doubt", str(error))
            raise
        return "never"

    app = app_of(handler, retry=ONCE)
    with live(place, app) as job:
        attempt = job.recording.attempt()
        assert [one["step"] for one in in_doubt(attempt)] == ["charge"]
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.failed_step, replay.divergences) == ("failed", "charge", [])
    assert replay.failure_class == "in_doubt"


def test_a_skipped_effect_gives_its_first_answer(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> str:
        answer: str = await ctx.effect("charge", call, job.order_id, key="charge")
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return answer

    async def other(ctx: Context, job: Order) -> str:
        answer: str = await ctx.effect("charge", call, "something else", key="charge")
        return answer

    app = app_of(handler)
    with live(place, app) as job:
        assert isinstance(job.recording.attempt(2).by_name["charge"].events[-1].body, e.EffectSkipped)
        CALLS.clear()
        for number, outcome in ((1, "failed"), (2, "succeeded")):
            replay = dry_run(place, job, app, number)
            assert (replay.outcome, replay.divergences) == (outcome, [])
        changed = dry_run(place, job, app_of(other), 2)
    assert changed.kinds[0] == ("request_differs", "charge")
    assert CALLS == []


def test_a_key_used_for_something_else_is_a_conflict_again(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> str:
        await ctx.effect("charge", call, 1, key="charge")
        try:
            await ctx.effect("charge", call, 2, key="charge")
        except EffectConflict as error:
            return str(error)
        return "paid twice"

    app = app_of(handler)
    with live(place, app) as job:
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences) == ("succeeded", [])


def test_a_refusal_that_left_no_event_is_refused_again(place: Deployment) -> None:
    def gone() -> None:
        raise ConnectionResetError("gone")

    def cannot_tell(*args: Any) -> None:
        raise RuntimeError("the gateway's lookup is down")

    async def handler(ctx: Context, job: Order) -> None:
        await ctx.effect("charge", gone, key="charge", on_doubt=cannot_tell)

    app = app_of(handler, retry=Retry(max_attempts=2, base=0.01))
    with live(place, app) as job:
        for number in job.recording.attempts:
            replay = dry_run(place, job, app, number)
            assert (number, replay.outcome, replay.failed_step, replay.divergences) == (number, "failed", "charge", [])
        assert len(job.recording.attempts) == 2


def test_a_lease_that_was_refused_is_refused_again(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> str:
        async with ctx.lease("order:o1") as own, ctx.lease(free) as other:
            ctx.note("tokens", own=own.token, other=other.token)
            try:
                async with ctx.lease(free, wait=0.01):
                    return "twice"
            except LeaseUnavailable as error:
                return str(error)

    home = partition_for(b"order:o1", 2)
    free = next(f"stock:{n}" for n in range(99) if partition_for(f"stock:{n}".encode(), 2) == home)
    app = app_of(handler)
    with live(place, app) as job:
        attempt = job.recording.attempt()
        assert attempt.outcome == "succeeded", attempt.end
        held = leases(job.recording, attempt)
        assert [row["resource"] for row in held] == ["order:o1", free, free]
        assert [row["end"].split(":")[0] for row in held][1:] == ["released", "refused"]
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences) == ("succeeded", [])


def test_large_bodies_come_from_the_blob_store(place: Deployment) -> None:
    def big(size: int) -> str:
        return "x" * size

    async def handler(ctx: Context, job: Order) -> str:
        answer: str = await ctx.effect("fetch", big, 5000, key="fetch")
        return answer + job.order_id

    app = app_of(handler)
    with live(place, app, order_id="o" * 600) as job:
        assert job.head.payload_ref is not None
        replay = dry_run(place, job, app)
        assert (replay.outcome, replay.divergences) == ("succeeded", [])

        async def longer(ctx: Context, job: Order) -> str:
            return "y" + await handler(ctx, job)

        assert dry_run(place, job, app_of(longer)).kinds == [("result_differs", None)]


def test_secrets_are_masked_in_what_a_replay_shows(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> None:
        ctx.decide("card", job.card.get_secret_value())
        await ctx.effect("charge", call, job.card.get_secret_value(), key="charge")

    async def leaky(ctx: Context, job: Order) -> None:
        ctx.decide("card", "x" + job.card.get_secret_value())
        await ctx.effect("charge", call, "x" + job.card.get_secret_value(), key="charge")

    with live(place, app_of(handler), card="1234-5678") as job:
        assert dry_run(place, job, app_of(handler)).divergences == []
        replay = dry_run(place, job, app_of(leaky))
    assert [kind for kind, _ in replay.kinds] == ["decision_differs", "request_differs"]
    assert "1234-5678" not in str(replay.divergences) + str(replay.reason)


def test_a_job_that_timed_out_ends_there(place: Deployment) -> None:
    async def handler(ctx: Context, job: Order) -> None:
        await ctx.effect("charge", call, key="charge")
        await asyncio.sleep(30)

    app = app_of(handler, retry=ONCE, timeout=0.3)
    with live(place, app) as job:
        attempt = job.recording.attempt()
        assert attempt.outcome == "failed" and not attempt.by_handler
        replay = dry_run(place, job, app, limit=0.5)
    assert (replay.outcome, replay.divergences) == ("unfinished", [])
    assert "no result within" in (replay.reason or "")


def test_a_call_that_the_time_out_cut_short_ends_there(place: Deployment) -> None:
    async def endless() -> None:
        await asyncio.sleep(30)

    async def handler(ctx: Context, job: Order) -> str:
        try:
            await ctx.effect("charge", endless, key="charge")
        except InDoubt:
            return "the handler never saw this"
        return "done"

    app = app_of(handler, retry=ONCE, timeout=0.3)
    with live(place, app) as job:
        doubt = job.recording.attempt().by_name["charge"].events[-1].body
        assert isinstance(doubt, e.EffectInDoubt) and doubt.duration is None
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences) == ("unfinished", [])
    assert replay.reason == "ends here: step charge started, outcome unknown"


def test_what_a_person_told_of_a_doubt_answers_forks_and_later_attempts(place: Deployment) -> None:
    def hang() -> str:
        CALLS.append("call")
        raise TimeoutError("no answer")

    async def handler(ctx: Context, job: Order) -> str:
        receipt: str = await ctx.effect("charge", hang, key="charge")
        return receipt

    app = app_of(handler, retry=ONCE)
    with live(place, app) as job:
        home, key = job.past.partition, "order:o1/charge/charge"
    told = e.ResolveCommand("c1", "asked", "me", key, "succeeded", b'"r1"', None)
    append_command(place, home, "job-1", told)
    append_command(place, home, "job-1", e.RetryCommand("c2", "told", "me"))
    work(place, app)
    with open_job(place, "job-1") as job:
        assert (job.recording.attempt().outcome, CALLS) == ("succeeded", ["call"])
        first = dry_run(place, job, app, 1)
        assert (first.outcome, first.failure_class, first.divergences) == ("failed", "in_doubt", [])
        second = dry_run(place, job, app, 2)
        assert (second.outcome, second.divergences) == ("succeeded", [])
        base = job.recording.attempt(1).by_name["charge"].first
        forked = fork(place, job, app, base, 1)
        assert forked.outcome == "succeeded"
        assert [(body.answer, body.evidence) for body in forked.bodies(e.EffectSucceeded)] == [(b'"r1"', "operator")]
        assert CALLS == ["call"]


@pytest.mark.parametrize("done", [True, False])
def test_a_call_that_cut_its_attempt_off_is_answered_from_the_resolution(place: Deployment, done: bool) -> None:
    async def hang() -> str:
        await asyncio.sleep(60)
        return "never"

    async def handler(ctx: Context, job: Order) -> str:
        receipt: str = await ctx.effect("charge", hang, key="charge")
        CALLS.append(receipt)
        return receipt

    app = app_of(handler, retry=ONCE, timeout=0.1)
    with live(place, app) as job:
        home = job.past.partition
        assert "outcome unknown" in (dry_run(place, job, app).reason or "")
        base = job.recording.attempt().by_name["charge"].first
        assert fork(place, job, app, base).kinds == [("outcome_unknown", "charge")]
    outcome, answer = ("succeeded", b'"r1"') if done else ("failed", None)
    told = e.ResolveCommand("c1", "asked", "me", "order:o1/charge/charge", outcome, answer, None)
    append_command(place, home, "job-1", told)
    work(place, app)
    with open_job(place, "job-1") as job:
        assert dry_run(place, job, app).outcome == "unfinished"
        assert (["r1"] if done else []) == CALLS
        forked = fork(place, job, app, base)
        assert (forked.outcome, forked.divergences) == ("succeeded" if done else "failed", [])
        assert [body.exception for body in forked.bodies(e.EffectFailed)] == ([] if done else ["EffectBlocked"])
