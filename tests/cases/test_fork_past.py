"""A fork has all that was recorded up to its point and nothing of what came later, and its parent stays as it was.

Guards: `resolve` and `check_half_done` in `replay/points.py` refuse points that do not exist; the fork's session
answers from the recording only what lies before the base, and reads state through an overlay that ends there
(`replay/fork_session.py`, `store/overlay.py`). Each step of one plain attempt is in `tests/unit/replay/test_fork.py`;
topics, deletion and production's bytes are in `tests/replay/test_fork_process.py`. A fork of a fork is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import deployment, fork, submit, work

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core.position import Position
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.replay.diff import diff, fork_recording
from rewindq.engine.replay.points import BadPoint, HalfDone, Partition, Wanted, resolve
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.store.working import read_aggregate

LEDGER: list[str] = []
CACHE = {"rate": (7, "v1")}


class Order(BaseModel):
    """An order, which waited for its time before its first attempt."""

    order_id: str


class Child(BaseModel):
    """A child of it."""

    n: int


def call(name: str) -> str:
    """The outside world."""
    LEDGER.append(name)
    return f"{name} {len(LEDGER)}"


async def order(ctx: Context, job: Order) -> str:
    """State, a cache, a lease, the clock, chance, two children, two effects: all that a past is made of."""
    found = await ctx.load("order", job.order_id)
    rate = await ctx.cache("rates", "rate")
    first: str = await ctx.effect("charge", call, "charge", key="charge")
    if ctx.attempt == 1:
        raise ConnectionError("try again")
    ctx.decide("rate", rate, attempt=ctx.attempt)
    child = await ctx.enqueue("child", {"n": 1})
    await ctx.save("order", job.order_id, {"receipt": first, "rate": rate, "child": child}, expected=found.version)
    async with ctx.lease("desk:1", ttl=5, wait=1):
        second: str = await ctx.effect("notify", call, "notify", key="notify")
    await ctx.enqueue("child", {"n": 2})
    ctx.note("end", at=ctx.now().isoformat(), id=str(ctx.uuid()), chance=ctx.random.random())
    return f"{first}, {second}"


async def child(ctx: Context, job: Child) -> None:
    """Nothing."""


def app_of(handler: Any = order) -> App:
    app = App("test")
    app.job("order", key="desk:1", retry=Retry(max_attempts=2, base=0.01))(handler)
    app.job("child")(child)
    app.cache_source("rates", lambda key: CACHE[key])
    return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()
    LEDGER.clear()


@pytest.fixture
def job(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobPast]:
    submit(place, "order", {"order_id": "o1"}, "job-1", "desk:1")
    work(place, app_of())
    assert LEDGER == ["charge", "notify"]
    monkeypatch.setitem(CACHE, "rate", (8, "v2"))  # the world has moved on
    with open_job(place, "job-1") as found:
        assert found.recording.attempt().number == 2 and found.recording.attempt().outcome == "succeeded"
        yield found


def compared(job: JobPast, base: int, replay: Any) -> dict[str, Any]:
    forked = fork_recording(job.recording, Position(job.past.partition, base), replay.records)
    return diff(
        job.recording, forked, 2, lambda key, field: read_aggregate(job.past.store, key, base - 1).data.get(field)
    )


def dump(place: Deployment) -> dict[str, list[Any]]:
    assert isinstance(place.log, MemoryLog)
    return {
        f"{name}/{one.number}": list(one.records) for name, found in place.log.state.topics.items() for one in found
    }


def test_at_each_point_all_before_is_there_and_nothing_behind(place: Deployment, job: JobPast) -> None:
    attempt = job.recording.attempt(2)
    known = Partition(job.past.store, place.log, place.codec, job.past.topics, job.past.next_seq)
    assert attempt.started is not None and attempt.end is not None
    before, points = dump(place), 0
    for seq in range(attempt.started.seq, attempt.end.seq + 1):
        try:
            base = resolve(job.recording, job.head, Wanted(at=f"p{job.past.partition}@{seq}"), 2, known).seq
        except HalfDone:
            continue
        points += 1
        replay = fork(place, job, app_of(), base, 2)
        assert (seq, replay.outcome, replay.divergences) == (seq, "succeeded", [])
        own = [at for at in replay.records if at.seq >= base]
        assert own == replay.records and (not own or own[0].seq == base)
        found = compared(job, base, replay)
        assert [row for row in found["steps"] if not row["same"]] == [], (seq, found)
        assert found["state"] == [] and found["outcome"] == ["succeeded", "succeeded"]
        children = [body.child_id for body in replay.bodies(e.ChildEnqueued)]
        later = [at for at in attempt.events if at.seq >= base and isinstance(at.body, e.ChildEnqueued)]
        assert children == [at.body.child_id for at in later]
    assert points >= 8
    assert LEDGER == ["charge", "notify"] and dump(place) == before


def test_a_point_in_an_effect_of_a_later_attempt_and_points_outside_are_refused(
    place: Deployment, job: JobPast
) -> None:
    known = Partition(job.past.store, place.log, place.codec, job.past.topics, job.past.next_seq)
    attempt = job.recording.attempt(2)
    assert attempt.end is not None and job.recording.accepted is not None
    notify = attempt.by_name["notify"]
    for seq, refusal in (
        (notify.first + 1, HalfDone),
        (job.recording.accepted.seq, BadPoint),
        (attempt.end.seq + 1, BadPoint),
        (job.past.next_seq + 1, BadPoint),
    ):
        with pytest.raises(refusal):
            resolve(job.recording, job.head, Wanted(at=f"p{job.past.partition}@{seq}"), None, known)
    with pytest.raises(BadPoint, match="has no step 'refund'"):
        resolve(job.recording, job.head, Wanted(before="refund"), 2, known)


def test_what_was_read_and_done_before_the_point_answers_other_code(place: Deployment, job: JobPast) -> None:
    seen: list[Any] = []

    async def changed(ctx: Context, job: Order) -> str:
        found = await ctx.load("order", job.order_id)
        seen.append((dict(found.data), await ctx.cache("rates", "rate")))
        seen.append(await ctx.effect("charge", call, "charge", key="charge"))
        seen.append(dict((await ctx.load("order", job.order_id)).data))
        return "changed"

    attempt = job.recording.attempt(2)
    replay = fork(place, job, app_of(changed), attempt.by_name["rate"].first, 2)
    assert replay.outcome == "succeeded"
    assert seen == [({}, 7), "charge 1", {}]
    seen.clear()
    behind = attempt.by_name["notify"].first
    fork(place, job, app_of(changed), behind, 2)
    assert seen[0] == ({}, 7) and seen[1] == "charge 1" and seen[2]["rate"] == 7
    assert LEDGER == ["charge", "notify"]
