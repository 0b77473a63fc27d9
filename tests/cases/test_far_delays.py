"""However far or silly a delay is: it is kept exactly, or refused by its field's name, and nothing else suffers.

Pinned down: `core/times.py` (`duration_us`, `are_seconds`) checks what people write, `Submitter` and `Context` ask it
before anything is recorded; `Intake` parks due times of other producers that lie beyond ten years; `Worker._timeout`
waits half a second at most, and no less for a far timer. Units of durations: `unit/core/test_times.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import VirtualClock
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import state as s
from rewindq.engine.core.times import DURATION_MAX_US
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import SubmissionRefused
from rewindq.processors.worker.worker import Worker

SECOND, DAY = 1_000_000, 86_400
#: What is no delay, each in the way that people get it wrong.
NONE = [-1, -1e-9, 1e12, math.inf, -math.inf, math.nan, True, "soon", None, timedelta.max, timedelta(seconds=-1)]
#: Delays and what is waited, in microseconds: around the limits of timers of 32 bits in milliseconds, and the longest.
FAR: list[tuple[float | str, int]] = [
    (1e-9, 1),
    ((2**31 - 1) / 1000, (2**31 - 1) * 1000),
    ((2**31 + 1) / 1000, (2**31 + 1) * 1000),
    ("49.7d", 4_294_080 * SECOND),
    (2**32 / 1000 + 1, 2**32 * 1000 + SECOND),
    ("3650d", 3650 * DAY * SECOND),
    (DURATION_MAX_US // SECOND, DURATION_MAX_US),
]


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Place:
    """A worker that runs beside a story, and what ran."""

    def __init__(self, folder: Path) -> None:
        self.ran: list[str] = []
        self.app = App("far")
        self.app.job(name="note", retry=Retry(max_attempts=1))(self._note)
        self.shop = Shop(folder, self.app)
        self.client = Client(deployment=self.shop.deployment, app=self.app)
        self.normal = 0

    async def _note(self, ctx: Context, job: Item) -> None:
        self.ran.append(ctx.job_id)

    def run(self, story: Callable[[Worker], Awaitable[None]]) -> None:
        async def told(worker: Worker) -> None:
            try:
                await story(worker)
            finally:
                worker.stop()

        self.shop.run(lambda report: False, told)

    async def beside(self, worker: Worker) -> None:
        """A job without a delay runs now: whoever has seen it has seen the clock as it is."""
        self.normal += 1
        self.client.submit("note", {}, job_id=f"normal-{self.normal}")
        await until(lambda: f"normal-{self.normal}" in self.ran, worker.wake)


async def until(condition: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(20):
        while not condition():
            again()
            await asyncio.sleep(0.005)


def test_far_delays_are_exact_and_none_is_early(tmp_path: Path) -> None:
    place, clock = Place(tmp_path), VirtualClock()
    place.shop.deployment.clock = clock
    began = clock.now_us()
    for at, (delay, _) in enumerate(FAR):
        place.client.submit("note", {}, job_id=f"far-{at}", delay=delay)

    async def story(worker: Worker) -> None:
        await place.beside(worker)
        for at, (_, waits) in enumerate(FAR):
            if began + waits - SECOND > clock.now_us():
                clock.advance((began + waits - SECOND - clock.now_us()) / 1e6)
                await place.beside(worker)
                assert f"far-{at}" not in place.ran
            clock.advance(2)
            await until(lambda at=at: f"far-{at}" in place.ran, worker.wake)  # type: ignore[misc]
            await place.beside(worker)

    place.run(story)
    far = [job_id for job_id in place.ran if job_id.startswith("far")]
    assert far == [f"far-{at}" for at in range(len(FAR))]
    for at, (_, waits) in enumerate(FAR):
        due = place.shop.bodies(f"far-{at}")[0].due  # type: ignore[attr-defined]
        assert waits <= due - began <= waits + 1_000  # the log's clock is told in milliseconds


@pytest.mark.parametrize("delay", NONE)
def test_a_submission_with_no_delay_is_refused_and_not_sent(tmp_path: Path, delay: Any) -> None:
    place = Place(tmp_path)
    with pytest.raises(SubmissionRefused, match=r"delay must be (a duration such as|from 0 seconds to ten years)"):
        place.client.submit("note", {}, delay=delay)
    assert place.shop.deployment.log.bounds(place.shop.topics.jobs, 0) == (0, 0)


def test_a_handler_with_no_delay_is_refused_before_anything_is_enqueued(tmp_path: Path) -> None:
    place = Place(tmp_path)

    @place.app.job()
    async def parent(ctx: Context, job: Item) -> None:
        await ctx.enqueue("note", Item(), delay=NONE[job.n])  # type: ignore[arg-type]

    for n in range(len(NONE)):
        place.client.submit("parent", {"n": n}, job_id=f"parent-{n}")
    place.shop.run()
    for n, delay in enumerate(NONE):
        job = place.shop.job(f"parent-{n}")
        assert job.status == s.INVESTIGATION and job.attempt == 1 and job.failure is not None
        assert "enqueue note: delay must be" in job.failure.reason and repr(delay) in job.failure.reason
    assert place.ran == []


def test_due_times_of_other_producers_run_or_are_parked_and_the_loop_lives(tmp_path: Path) -> None:
    place = Place(tmp_path)
    now = place.shop.deployment.time.now_us()
    year_1, year_9999 = -62_135_596_800 * SECOND, 253_402_300_799 * SECOND
    beyond = {"milliseconds": now * 1000, "9999": year_9999, "long": 2**63 - 1, "negative": -1, "1": year_1}
    past = {"seconds": now // SECOND, "zero": 0, "before": now - SECOND}
    for job_id, due in (beyond | past).items():
        place.shop.submit("note", {}, job_id, due=due)
    place.client.submit("note", {}, job_id="normal")
    place.shop.run()
    assert sorted(place.ran) == sorted([*past, "normal"])
    for job_id in beyond:
        job = place.shop.job(job_id)
        assert job.status == s.INVESTIGATION and job.failure is not None
        assert f"due time {beyond[job_id]} µs lies outside of the next ten years" in job.failure.reason


def test_waiting_for_far_delays_is_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, looks = Place(tmp_path), 0
    gather = Worker._gather

    def counted(worker: Worker) -> None:
        nonlocal looks
        looks += 1
        gather(worker)

    for at, (delay, waits) in enumerate(FAR):
        if waits > SECOND:
            place.client.submit("note", {}, job_id=f"far-{at}", delay=delay)

    async def story(worker: Worker) -> None:
        await place.beside(worker)
        monkeypatch.setattr(Worker, "_gather", counted)
        clock = place.shop.deployment.clock.monotonic
        began = clock()
        await until(lambda: clock() - began > 2)

    place.run(story)
    assert 2 <= looks <= 8


@pytest.mark.parametrize("seconds", [0, -1, 1e300, math.inf, math.nan, True, "5"])
def test_other_durations_are_held_to_the_same(tmp_path: Path, seconds: Any) -> None:
    place = Place(tmp_path)
    with pytest.raises(AppError, match="timeout of '_note' must be seconds above 0"):
        place.app.job(name="_note", timeout=seconds)(place._note)
    with pytest.raises(AppError, match="unique_for of '_note' must be seconds above 0"):
        place.app.job(name="_note", unique="u:{n}", unique_for=seconds)(place._note)

    @place.app.job()
    async def lease(ctx: Context, job: Item) -> None:
        async with ctx.lease("stock:9", ttl=seconds):
            place.ran.append("lease")

    @place.app.job()
    async def effect(ctx: Context, job: Item) -> None:
        await ctx.effect("call", lambda: place.ran.append("effect"), key="call", timeout=seconds)

    for name in ("lease", "effect"):
        place.client.submit(name, {}, job_id=name)
    place.shop.run()
    assert place.ran == []
    for name, told in (("lease", "ttl must be seconds above 0"), ("effect", "timeout must be seconds above 0")):
        job = place.shop.job(name)
        assert job.attempt == 1 and job.failure is not None and told in job.failure.reason
