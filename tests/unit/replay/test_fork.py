"""A fork answers from the recording up to its base, then lives in a state of its own with guarded effects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import cut, deployment, fork, record, submit, work

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.position import Position
from rewindq.engine.core.times import format_time
from rewindq.engine.replay.diff import diff, fork_recording
from rewindq.engine.replay.points import BadPoint, HalfDone, Partition, Wanted, resolve
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.store.newest import read_aggregate

CALLS: list[str] = []


class Order(BaseModel):
    order_id: str
    amount: int = 5


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


def call(name: str, *args: Any) -> str:
    CALLS.append(name)
    return f"{name}-done"


async def buggy(ctx: Context, job: Order) -> str:
    order = await ctx.load("order", job.order_id)
    receipt: str = await ctx.effect("charge", call, "charge", job.amount, key="charge")
    points = ctx.decide("points", job.amount * 1)
    await ctx.save("order", job.order_id, {"receipt": receipt, "points": points}, expected=order.version)
    await ctx.effect("notify", call, "notify", points, key="notify")
    return receipt


async def fixed(ctx: Context, job: Order) -> str:
    order = await ctx.load("order", job.order_id)
    receipt: str = await ctx.effect("charge", call, "charge", job.amount, key="charge")
    points = ctx.decide("points", job.amount * 10)
    await ctx.save("order", job.order_id, {"receipt": receipt, "points": points}, expected=order.version)
    await ctx.effect("notify", call, "notify", points, key="notify")
    return receipt


def app_of(handler: Any) -> App:
    app = App("test")
    app.job("order", resource="order:{order_id}")(handler)
    app.stub("notify")(lambda name, points: f"stubbed {points}")
    return app


@pytest.fixture
def job(place: Deployment) -> Iterator[JobPast]:
    with record(place, app_of(buggy), "order", {"order_id": "o1"}, "order:o1") as found:
        CALLS.clear()
        yield found


def step(job: JobPast, name: str) -> int:
    return job.recording.attempt().by_name[name].first


def compare(job: JobPast, base: int, replay: Any) -> dict[str, Any]:
    own = replay.records
    forked = fork_recording(job.recording, Position(job.past.partition, base), own)

    def base_field(key: str, field: str) -> Any:
        return read_aggregate(job.past.store, key, base - 1).data.get(field, DELETE)

    return diff(job.recording, forked, 1, base_field)


@pytest.mark.parametrize("before", ["load order:o1", "charge", "points", "save order:o1", "notify", None])
def test_the_same_code_gives_the_same_execution(place: Deployment, job: JobPast, before: str | None) -> None:
    attempt = job.recording.attempt()
    assert attempt.started is not None
    base = attempt.started.seq if before is None else step(job, before)
    replay = fork(place, job, app_of(buggy), base)
    assert (replay.outcome, replay.divergences, CALLS) == ("succeeded", [], [])
    compared = compare(job, base, replay)
    assert compared["same"], compared
    assert [row["step"] for row in compared["steps"]] == [one.name for one in attempt.steps]


def test_a_fix_shows_exactly_the_changed_fields(place: Deployment, job: JobPast) -> None:
    base = step(job, "points")
    replay = fork(place, job, app_of(fixed), base)
    compared = compare(job, base, replay)
    assert compared["state"] == [{"key": "order:o1", "field": "points", "original": 5, "fork": 50}]
    assert [row["step"] for row in compared["steps"] if not row["same"]] == ["points", "save order:o1", "notify"]
    effects = {row["name"]: (row["original"], row["fork"]) for row in compared["effects"]}
    assert effects == {"charge": ("succeeded", "succeeded"), "notify": ("succeeded", "stub")}
    assert compared["outcome"] == ["succeeded", "succeeded"]
    assert not compared["same"]
    assert ("request_differs", "notify") in replay.kinds
    assert replay.bodies(e.DivergenceFound)
    assert CALLS == []


def test_the_branch_goes_on_from_its_base(place: Deployment, job: JobPast) -> None:
    base = step(job, "points")
    first, second = (fork(place, job, app_of(fixed), base) for _ in range(2))
    assert first.records == second.records
    assert first.records[0].seq == base
    for one, following in zip(first.records, first.records[1:], strict=False):
        assert following.seq == one.next_seq
    assert {one.branch for one in first.records} == {"b"}
    assert first.records[0].lamport > job.recording.events[0].record.lamport


def test_an_effect_done_before_the_base_stays_done(place: Deployment, job: JobPast) -> None:
    async def dearer(ctx: Context, job: Order) -> str:
        order = await ctx.load("order", job.order_id)
        receipt: str = await ctx.effect("charge", call, "charge", job.amount, key="charge")
        again: str = await ctx.effect("charge again", call, "charge", job.amount, key="other")
        await ctx.save("order", job.order_id, {"receipt": receipt + again}, expected=order.version)
        return receipt

    base = step(job, "points")
    replay = fork(place, job, app_of(dearer), base)
    assert (replay.outcome, replay.failed_step) == ("failed", "charge again")
    assert ("unrecorded_step", "charge again") in replay.kinds
    failed = replay.bodies(e.EffectFailed)
    assert [body.exception for body in failed] == ["EffectBlocked"]
    assert CALLS == []


def test_a_changed_payload_changes_what_follows(place: Deployment, job: JobPast) -> None:
    attempt = job.recording.attempt()
    assert attempt.started is not None
    app = app_of(buggy)
    app.stub("charge")(lambda name, amount: f"stub-{amount}")
    payload = values.encode({"order_id": "o1", "amount": 9})
    replay = fork(place, job, app, attempt.started.seq, payload=payload)
    assert ("request_differs", "charge") in replay.kinds
    compared = compare(job, attempt.started.seq, replay)
    assert {row["field"]: row["fork"] for row in compared["state"]} == {"receipt": "stub-9", "points": 9}


def test_a_stub_that_fails_is_the_effects_failure(place: Deployment, job: JobPast) -> None:
    app = app_of(fixed)

    def broken(name: str, points: int) -> str:
        raise RuntimeError("stub broke")

    app.stub("notify")(broken)
    replay = fork(place, job, app, step(job, "points"))
    assert replay.outcome == "failed"
    assert [body.reason for body in replay.bodies(e.EffectFailed)] == ["stub broke"]


def partition_of(place: Deployment, job: JobPast) -> Partition:
    return Partition(job.past.store, place.log, place.codec, job.past.topics, job.past.next_seq)


def test_points_resolve_to_positions(place: Deployment, job: JobPast) -> None:
    attempt = job.recording.attempt()
    assert attempt.started is not None and attempt.end is not None
    known = partition_of(place, job)
    home = job.past.partition

    def at(**wanted: str) -> int:
        return resolve(job.recording, job.head, Wanted(**wanted), None, known).seq

    assert at() == attempt.started.seq
    assert at(before="save order:o1") == step(job, "save order:o1")
    assert at(version="1") == step(job, "save order:o1") + 1
    assert at(version="order/o1@1") == step(job, "save order:o1") + 1
    assert at(at=f"p{home}@{attempt.end.seq}") == attempt.end.seq
    with pytest.raises(BadPoint, match="no step 'nothing'"):
        at(before="nothing")
    with pytest.raises(BadPoint, match="no version 2"):
        at(version="2")
    with pytest.raises(BadPoint, match="behind the end of attempt 1"):
        at(at=f"p{home}@{attempt.end.seq + 1}")
    with pytest.raises(BadPoint, match="behind the log's end"):
        at(at=f"p{home}@{known.end + 1}")
    with pytest.raises(BadPoint, match="did not exist"):
        at(at=f"p{home}@0")
    with pytest.raises(BadPoint, match="another partition"):
        at(at=f"p{home + 1}@3")
    with pytest.raises(BadPoint, match="give one of"):
        at(at=f"p{home}@3", version="1")


def test_a_time_resolves_to_the_events_up_to_it(place: Deployment, job: JobPast) -> None:
    known = partition_of(place, job)
    attempt = job.recording.attempt()
    for one in attempt.events[1:]:
        if job.recording.events[0].record.timestamp == one.record.timestamp:
            continue
        wanted = Wanted(time=format_time(one.record.timestamp - 1))
        try:
            base = resolve(job.recording, job.head, wanted, 1, known)
        except HalfDone:
            continue
        assert all(at.record.timestamp < one.record.timestamp for at in job.recording.events if at.seq < base.seq)
        assert all(at.record.timestamp >= one.record.timestamp for at in job.recording.events if at.seq >= base.seq)


def test_a_half_done_effect_is_refused_with_the_nearest_safe_points(place: Deployment, job: JobPast) -> None:
    known = partition_of(place, job)
    charge = job.recording.attempt().by_name["charge"]
    assert charge.done_at is not None
    inside = f"p{job.past.partition}@{charge.first + 1}"
    with pytest.raises(HalfDone) as refused:
        resolve(job.recording, job.head, Wanted(at=inside), None, known)
    before, after = refused.value.before, refused.value.after
    assert (refused.value.effect, before, after) == (
        "charge",
        f"p{job.past.partition}@{charge.first}",
        f"p{job.past.partition}@{charge.done_at + 1}",
    )
    for safe in (before, after):
        resolve(job.recording, job.head, Wanted(at=safe), None, known)


def test_an_effect_without_outcome_has_no_safe_point_behind_it(place: Deployment, job: JobPast) -> None:
    charge = job.recording.attempt().by_name["charge"]
    short = cut(job.recording, charge.first + 1)
    with pytest.raises(HalfDone, match="never recorded"):
        resolve(short, job.head, Wanted(at=f"p{job.past.partition}@{charge.first + 1}"), 1, partition_of(place, job))


def test_a_later_attempt_forks_from_its_own_beginning(place: Deployment) -> None:
    async def flaky(ctx: Context, job: Order) -> int:
        receipt: str = await ctx.effect("charge", call, "charge", key="charge")
        if ctx.attempt == 1:
            raise ConnectionError("try again")
        order = await ctx.load("order", job.order_id)
        await ctx.save("order", job.order_id, {"receipt": receipt}, expected=order.version)
        return ctx.attempt

    submit(place, "order", {"order_id": "o1"}, "job-1", "order:o1")
    work(place, app_of(flaky))
    CALLS.clear()
    with open_job(place, "job-1") as job:
        for number, outcome in ((1, "failed"), (2, "succeeded")):
            base = resolve(job.recording, job.head, Wanted(), number, partition_of(place, job))
            assert base.attempt.number == number
            replay = fork(place, job, app_of(flaky), base.seq, number)
            assert (replay.outcome, replay.divergences, CALLS) == (outcome, [], [])
        skipped = fork(place, job, app_of(flaky), base.seq, 2)
        assert len(skipped.bodies(e.EffectSkipped)) == 1
