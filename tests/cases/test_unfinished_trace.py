"""A trace that ends in the middle is played to its last whole event and says so: no success, and no false divergence.

Guards: `Attempt.ends_here` and `Recording.of` keep attempts apart and know an end from a stop (`replay/recording.py`);
`_recording` stops at a torn record, wherever it stands, and notes what was removed, `check_whole` refuses to compare
with that; what the handler comes to behind the last recorded event is `unfinished` (`replay/running.py`). One attempt
cut at each of its borders is in `tests/unit/replay/test_dry_run.py`, bytes that fail their checksum in
`tests/embedded/test_damage.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.recorded import cut, deployment, dry_run, record, submit, work

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.replay.recording import NoRecording
from rewindq.engine.replay.replays import trace
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.runtime.deployment import Deployment

LEDGER: list[str] = []


class Order(BaseModel):
    """An order."""

    order_id: str


def call(name: str) -> str:
    """The outside world."""
    LEDGER.append(name)
    return f"done {name}"


async def order(ctx: Context, job: Order) -> str:
    """Its first attempt fails half way."""
    found = await ctx.load("order", job.order_id)
    receipt: str = await ctx.effect("charge", call, "charge", key="charge")
    if ctx.attempt == 1:
        raise ConnectionError("try again")
    ctx.decide("again", ctx.attempt)
    await ctx.save("order", job.order_id, {"receipt": receipt}, expected=found.version)
    await ctx.effect("notify", call, "notify", key="notify")
    return receipt


def app_of(handler: object = order) -> App:
    app = App("test")
    app.job("order", resource="order:{order_id}", retry=Retry(max_attempts=2, base=0.01))(handler)  # type: ignore[arg-type]
    return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()
    LEDGER.clear()


@pytest.fixture
def job(place: Deployment) -> Iterator[JobPast]:
    with record(place, app_of(), "order", {"order_id": "o1"}, "order:o1") as found:
        assert LEDGER == ["charge", "notify"]
        LEDGER.clear()
        yield found


def test_two_attempts_cut_at_each_border_are_kept_apart(place: Deployment, job: JobPast) -> None:
    first, second = job.recording.attempt(1), job.recording.attempt(2)
    assert first.started and first.end and second.started and second.end
    borders = range(first.started.seq + 1, second.end.seq + 2)
    assert len(borders) > 12
    for seq in borders:
        short = cut(job.recording, seq)
        known = [number for number, one in sorted(short.attempts.items()) if one.started is not None]
        assert known == ([1, 2] if seq > second.started.seq else [1])
        for attempt in (first, second)[: len(known)]:
            assert attempt.end is not None
            whole = seq > attempt.end.seq
            replay = dry_run(place, job, app_of(), attempt.number, recording=short)
            assert (seq, attempt.number, replay.divergences) == (seq, attempt.number, [])
            assert replay.outcome == (attempt.outcome if whole else "unfinished")
            assert whole or (replay.reason or "").startswith("ends here: ")
            assert short.attempt(attempt.number).outcome == (attempt.outcome if whole else "unfinished")
    with pytest.raises(NoRecording, match="no attempt 2"):
        cut(job.recording, second.started.seq).attempt(2)
    assert LEDGER == []


def test_a_trace_that_is_being_written_ends_where_it_stands(place: Deployment) -> None:
    begun, on = threading.Event(), threading.Event()

    async def wait() -> str:
        begun.set()
        while not on.is_set():
            await asyncio.sleep(0.01)
        return "done"

    async def slow(ctx: Context, job: Order) -> str:
        await ctx.load("order", job.order_id)
        answer: str = await ctx.effect("slow", wait, key="slow")
        return answer

    submit(place, "order", {"order_id": "o1"}, "job-1", "order:o1")
    worker = threading.Thread(target=work, args=(place, app_of(slow)))
    worker.start()
    try:
        assert begun.wait(20)
        with open_job(place, "job-1") as job:
            replay = dry_run(place, job, app_of(slow))
            assert (replay.outcome, replay.divergences) == ("unfinished", [])
            assert replay.reason == "ends here: step slow started, outcome unknown"
    finally:
        on.set()
        worker.join(20)
    with open_job(place, "job-1") as job:
        assert dry_run(place, job, app_of(slow)).outcome == "succeeded"


@pytest.mark.parametrize("step", ["load order:o1", "charge", "again", "notify"])
def test_a_torn_record_ends_the_trace_at_the_last_whole_event(place: Deployment, job: JobPast, step: str) -> None:
    assert isinstance(place.log, MemoryLog)
    seq = job.recording.attempt(2).by_name[step].events[-1].record.seq
    partition = place.log.state.topics[place.topics.domain][job.past.partition]
    at = next(at for at, one in enumerate(partition.records) if place.codec.decode(one.value).seq == seq)
    partition.records[at] = partition.records[at]._replace(value=(partition.records[at].value or b"")[:-3])
    with open_job(place, "job-1") as torn:
        assert f"domain partition {job.past.partition} offset {partition.offsets[at]}" in (torn.recording.damaged or "")
        assert max(one.seq for one in torn.recording.events) < seq
        first, second = (dry_run(place, torn, app_of(), number) for number in (1, 2))
    assert (first.outcome, first.divergences) == ("failed", [])
    assert (second.outcome, second.divergences) == ("unfinished", [])
    assert (second.reason or "").startswith("ends here: ")
    shown = trace(place, "job-1", 2).shown
    assert shown["outcome"] == "unfinished" and "the next record is damaged" in shown["ends_here"]


def _remove(place: Deployment, topic: str, partition: int, keep: int) -> None:
    """As retention does."""
    assert isinstance(place.log, MemoryLog)
    found = place.log.state.topics[topic][partition]
    del found.records[:-keep], found.offsets[:-keep]
    found.low = found.offsets[0]


def test_a_trace_without_its_head_is_refused_by_name(place: Deployment, job: JobPast) -> None:
    _remove(place, place.topics.lifecycle, job.past.partition, 2)  # the second attempt's start and end
    with open_job(place, "job-1") as rest:
        with pytest.raises(NoRecording, match="no attempt 1"):
            rest.recording.attempt(1)
        assert dry_run(place, rest, app_of(), 2).outcome == "succeeded"
    _remove(place, place.topics.domain, job.past.partition, 1)
    with open_job(place, "job-1") as rest, pytest.raises(NoRecording, match="not hold all of attempt 2 of job job-1"):
        dry_run(place, rest, app_of(), 2)
    assert "were removed from the log (behind the beginning" in trace(place, "job-1", 2).shown["ends_here"]
    assert LEDGER == []


def test_an_end_is_never_made_up(job: JobPast) -> None:
    second = job.recording.attempt(2)
    assert second.end is not None and isinstance(second.end.body, e.JobSucceeded)
    assert second.ends_here is None and cut(job.recording, second.end.seq).attempt(2).ends_here is not None
