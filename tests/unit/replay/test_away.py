"""Replays of jobs that use what is at home on another partition: they see of it what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import PARTITIONS, cut, deployment, dry_run, fork, record

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.position import Position
from rewindq.engine.replay.diff import diff, fork_recording
from rewindq.engine.replay.source import JobPast
from rewindq.engine.runtime.deployment import Deployment

STOCK = next(
    str(n)
    for n in range(100)
    if partition_for(f"stock:{n}".encode(), PARTITIONS) != partition_for(b"order:o1", PARTITIONS)
)


class Order(BaseModel):
    order_id: str


def take(by: int) -> Any:
    async def taking(ctx: Context, job: Order) -> int:
        async with ctx.lease(f"stock:{STOCK}") as lease:
            stock = await ctx.load("stock", STOCK)
            left = ctx.decide("left", stock.get("left", 10) - by)
            version = await ctx.save("stock", STOCK, {"left": left}, expected=stock.version)
            again = await ctx.load("stock", STOCK)
            ctx.note("seen", left=again["left"], token=lease.token)
            return version

    return taking


async def other(ctx: Context, job: Order) -> None:
    await ctx.load("stock", f"{STOCK}{STOCK}")
    for n in range(100):
        await ctx.load("never", n)


def app_of(handler: Any) -> App:
    app = App("test")
    app.job("order", resource="order:{order_id}")(handler)
    return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


@pytest.fixture
def job(place: Deployment) -> Iterator[JobPast]:
    with record(place, app_of(take(1)), "order", {"order_id": "o1"}, "order:o1") as found:
        yield found


def test_the_same_code_takes_the_same_path(place: Deployment, job: JobPast) -> None:
    replay = dry_run(place, job, app_of(take(1)))

    assert (replay.outcome, replay.divergences) == ("succeeded", [])


def test_another_write_elsewhere_is_a_divergence(place: Deployment, job: JobPast) -> None:
    replay = dry_run(place, job, app_of(take(3)))

    assert replay.kinds == [("decision_differs", "left"), ("write_differs", f"save stock:{STOCK}")]
    assert replay.outcome == "succeeded"


def test_a_recording_that_ends_in_a_request_says_so(place: Deployment, job: JobPast) -> None:
    asked = job.recording.attempt().by_name[f"save stock:{STOCK}"].first
    replay = dry_run(place, job, app_of(take(1)), recording=cut(job.recording, asked + 1))

    assert replay.outcome == "unfinished"
    assert "outcome unknown" in (replay.reason or "")


@pytest.mark.parametrize("before", [None, "left", f"save stock:{STOCK}"])
def test_a_fork_writes_elsewhere_in_its_branch_only(place: Deployment, job: JobPast, before: str | None) -> None:
    attempt = job.recording.attempt()
    assert attempt.started is not None
    base = attempt.started.seq if before is None else attempt.by_name[before].first
    replay = fork(place, job, app_of(take(3)), base)

    assert replay.outcome == "succeeded"
    forked = fork_recording(job.recording, Position(job.past.partition, base), replay.records)
    compared = diff(job.recording, forked, 1, lambda key, field: DELETE)
    if before != f"save stock:{STOCK}":
        assert compared["state"] == [{"key": f"stock:{STOCK}", "field": "left", "original": 9, "fork": 7}]
    answered = [body for body in replay.bodies(e.RemoteAnswered) if body.op == "save"]
    assert [body.outcome for body in answered] == ["done"]


def test_what_was_never_read_stays_unknown(place: Deployment, job: JobPast) -> None:
    attempt = job.recording.attempt()
    assert attempt.started is not None
    replay = fork(place, job, app_of(other), attempt.started.seq)

    assert replay.outcome == "failed"
    assert "at home on another partition" in (replay.reason or "")
