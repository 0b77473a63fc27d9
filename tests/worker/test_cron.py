"""Periodic jobs in workers, on clocks that a test moves: each instant once, whatever happens to owners and clocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import VirtualClock
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.times import parse_time
from rewindq.engine.runtime.app import AppError, LoadedApp
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.schedules import schedules_shown
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.worker import Worker

T0 = "2026-11-29T10:00:00Z"


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Bell:
    """An app with schedules, a clock that stands still until it is moved, and what ran."""

    def __init__(self, folder: Path, *schedules: dict[str, Any], partitions: int = 2) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.app = self.app_with(*schedules)
        self.clock = VirtualClock(parse_time(T0))
        self.shop = Shop(folder, self.app, partitions=partitions)
        self.shop.deployment.clock = self.clock

    def app_with(self, *schedules: dict[str, Any]) -> App:
        app = App("bell")

        async def ring(ctx: Context, job: Item) -> None:
            self.ran.append(ctx.job_id)

        for schedule in schedules:
            app.cron(**schedule)(ring)
        app.job()(ring)
        return app

    @property
    def instants(self) -> list[str]:
        """The times of the instants that ran."""
        return [job_id.split("T")[1].rstrip("Z") for job_id in self.ran]

    def idle(self) -> None:
        """Runs a worker until it is idle."""
        self.shop.run()

    def run(self, story: Callable[[Worker], Any]) -> None:
        """Runs a worker beside a story that ends it."""

        async def told(worker: Worker) -> None:
            try:
                await until(lambda: worker.report.owned == self.shop.deployment.partitions)
                await story(worker)
            finally:
                worker.stop()

        self.shop.run(lambda report: False, told)

    async def passes(self, worker: Worker, seconds: float, step: float = 1.0) -> None:
        """Time passes in steps; after each the worker does what is due."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            await self.settled(worker)

    async def settled(self, worker: Worker) -> None:
        """Returns when the worker has seen the clock and run all that was due."""
        turns = worker._scheduler

        def done() -> bool:
            waits = turns.next_in()
            seen = all(home.timeline.elapsed == self.clock.monotonic() * 1e6 for home in turns._homes.values())
            walls = all(home.timeline.wall == self.clock.now_us() for home in turns._homes.values())
            quiet = worker._idle.look() or not worker._owners
            return seen and walls and quiet and (waits is None or waits > 0)

        worker.wake()
        await until(done, worker.wake)

    def planned(self) -> list[e.InstantPlanned]:
        return [body for body in self.shop.bodies() if isinstance(body, e.InstantPlanned)]


async def until(condition: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(20):
        while not condition():
            again()
            await asyncio.sleep(0.005)


def every_five_minutes(**more: Any) -> dict[str, Any]:
    return {"expression": "*/5 * * * *", "name": "tick", **more}


def test_each_instant_is_one_job_with_its_payload(tmp_path: Path) -> None:
    bell = Bell(tmp_path, every_five_minutes(payload={"n": 7}))

    async def story(worker: Worker) -> None:
        await bell.passes(worker, 15 * 60, 60)

    bell.run(story)
    assert bell.ran == [f"cron:tick:2026-11-29T10:{minute:02}:00Z" for minute in (5, 10, 15)]
    accepted = next(body for body in bell.shop.bodies(bell.ran[0]) if isinstance(body, e.JobAccepted))
    assert accepted.payload == b'{"n":7}'
    assert verify(bell.shop.deployment)["violations"] == []


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("latest", ["10:05:00", "10:20:00"]),
        ("all", ["10:05:00", "10:10:00", "10:15:00", "10:20:00"]),
        ("none", ["10:05:00"]),
    ],
)
def test_what_was_missed_while_nobody_ran_goes_by_the_policy(tmp_path: Path, missed: str, expected: list[str]) -> None:
    bell = Bell(tmp_path, every_five_minutes(missed=missed))

    async def story(worker: Worker) -> None:
        await bell.passes(worker, 5 * 60, 60)

    bell.run(story)
    bell.clock.advance(17 * 60)
    bell.idle()
    bell.idle()
    assert sorted(bell.instants) == expected
    last = bell.planned()[-1]
    assert (last.instant, last.missed) == (parse_time("2026-11-29T10:20:00Z"), 0 if missed == "all" else 2)


def test_a_schedule_that_is_new_or_changed_begins_then(tmp_path: Path) -> None:
    bell = Bell(tmp_path, every_five_minutes())
    bell.idle()
    bell.clock.advance(11 * 60)
    bell.shop.app = bell.app_with({"expression": "*/4 * * * *", "name": "tick"})
    bell.idle()
    assert bell.ran == [], "the old rhythm is over, the new one has not come yet"
    bell.clock.advance(60)
    bell.idle()
    assert bell.instants == ["10:12:00"]


def test_two_workers_and_a_takeover_plan_each_instant_once(tmp_path: Path) -> None:
    schedules = [{"expression": "*/5 * * * * *", "name": f"tick-{n}"} for n in range(6)]
    bell = Bell(tmp_path, *schedules, partitions=4)

    async def story() -> None:
        def begin(name: str) -> tuple[Worker, asyncio.Task[Any]]:
            options = WorkerOptions(name=name)
            worker = Worker(bell.shop.deployment, LoadedApp(bell.app, "tests:app", "c0de"), options)
            return worker, asyncio.create_task(worker.run())

        async def both(workers: list[Worker]) -> None:
            await until(lambda: sum(w.report.owned for w in workers) == 4)
            for _ in range(6):
                bell.clock.advance(5)
                for worker in workers:
                    await bell.settled(worker)

        first, first_run = begin("one")
        await both([first])
        second, second_run = begin("two")
        await until(lambda: second.report.owned > 0)
        await both([first, second])
        first.stop()
        await first_run
        await both([second])
        second.stop()
        await second_run

    asyncio.run(asyncio.wait_for(story(), 90))
    counts = Counter(bell.ran)
    assert set(counts.values()) == {1}
    times = {f"10:{seconds // 60:02}:{seconds % 60:02}" for seconds in range(5, 95, 5)}
    for n in range(6):
        assert {job_id.split("T")[1].rstrip("Z") for job_id in counts if f"tick-{n}:" in job_id} == times
    assert verify(bell.shop.deployment)["violations"] == []


def test_an_instant_that_two_planners_submit_is_one_job(tmp_path: Path) -> None:
    bell = Bell(tmp_path, every_five_minutes())
    bell.idle()
    bell.clock.advance(5 * 60)
    bell.shop.submit("ring", {}, "cron:tick:2026-11-29T10:05:00Z")
    bell.idle()
    assert bell.instants == ["10:05:00"]
    assert any(isinstance(body, e.SubmissionDuplicated) for body in bell.shop.bodies())


def test_a_clock_that_is_set_back_neither_doubles_nor_stalls(tmp_path: Path) -> None:
    bell = Bell(tmp_path, {"expression": "*/5 * * * * *", "name": "tick"}, partitions=1)

    async def story(worker: Worker) -> None:
        await bell.passes(worker, 20)
        bell.clock.jump(-7200)
        await bell.settled(worker)
        before = len(bell.ran)
        await bell.passes(worker, 61)
        assert len(bell.ran) - before == 10, "every 6 seconds of real time"

    async def restarted(worker: Worker) -> None:
        before = len(bell.ran)
        await bell.passes(worker, 13)
        assert len(bell.ran) - before == 2, "the clock is still behind what was planned"

    bell.run(story)
    bell.run(restarted)
    assert max(Counter(bell.ran).values()) == 1
    assert bell.instants[:4] == ["10:00:05", "10:00:10", "10:00:15", "10:00:20"]
    jumps = [body for body in bell.shop.bodies() if isinstance(body, e.ClockJumped)]
    assert [(jump.by, jump.restart) for jump in jumps] == [(-7200 * 1_000_000, None)]


def test_a_clock_that_is_set_forward_gives_one_catch_up_run_and_may_come_back(tmp_path: Path) -> None:
    bell = Bell(tmp_path, {"expression": "*/5 * * * * *", "name": "tick"}, partitions=1)

    async def story(worker: Worker) -> None:
        await bell.passes(worker, 10)
        bell.clock.jump(30 * 86_400)
        await bell.settled(worker)
        assert len(bell.ran) == 3, "one for a month"
        await bell.passes(worker, 10)
        bell.clock.jump(-30 * 86_400)
        await bell.settled(worker)
        await bell.passes(worker, 10)

    bell.run(story)
    assert [job_id.split(":", 2)[2] for job_id in bell.ran] == [
        "2026-11-29T10:00:05Z",
        "2026-11-29T10:00:10Z",
        "2026-12-29T10:00:10Z",
        "2026-12-29T10:00:15Z",
        "2026-12-29T10:00:20Z",
        "2026-11-29T10:00:25Z",
        "2026-11-29T10:00:30Z",
    ]
    found = verify(bell.shop.deployment)
    assert found["violations"] == []
    assert found["digest"] == found["rebuilt_digest"]


def test_small_steps_of_the_clock_keep_the_rhythm(tmp_path: Path) -> None:
    bell = Bell(tmp_path, {"expression": "*/5 * * * * *", "name": "tick"}, partitions=1)
    at: list[float] = []

    async def story(worker: Worker) -> None:
        for second in range(90):
            if second % 3 == 0:
                bell.clock.jump(2 if second % 6 else -2)
            before = len(bell.ran)
            await bell.passes(worker, 1)
            at.extend([bell.clock.monotonic()] * (len(bell.ran) - before))

    bell.run(story)
    assert all(4 <= after - before <= 6 for before, after in pairwise(at)), at
    assert max(Counter(bell.ran).values()) == 1


def test_a_quarantined_type_is_planned_and_held(tmp_path: Path) -> None:
    bell = Bell(tmp_path, every_five_minutes(), partitions=1)
    command = e.QuarantineCommand("c1", "why", "ann", "ring")
    bell.shop.input(bell.shop.topics.commands, "quarantine-c1", command, "", 0)
    bell.idle()
    bell.clock.advance(5 * 60)
    bell.idle()
    assert bell.ran == []
    assert bell.shop.job("cron:tick:2026-11-29T10:05:00Z").status == s.WAITING


def test_the_list_needs_no_app(tmp_path: Path) -> None:
    daily = {"expression": "0 9 * * *", "tz": "Asia/Jakarta", "name": "daily", "missed": "all"}
    bell = Bell(tmp_path, every_five_minutes(), daily)
    bell.idle()
    bell.clock.advance(6 * 60)
    bell.idle()
    with Past(bell.shop.deployment) as past:
        first, second = schedules_shown(past)
    assert (first["name"], first["tz"], first["next"], first["last"]) == (
        "daily",
        "Asia/Jakarta",
        "2026-11-30T02:00:00.000000Z",
        None,
    )
    assert (second["last"], second["next"], second["last_job"]) == (
        "2026-11-29T10:05:00.000000Z",
        "2026-11-29T10:10:00.000000Z",
        "cron:tick:2026-11-29T10:05:00Z",
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"expression": "* * *"}, "no cron expression"),
        ({"expression": "0 9 * * *", "tz": "Mars/Base"}, "no time zone 'Mars/Base'"),
        ({"expression": "0 9 * * *", "tz": "../etc/passwd"}, "no time zone"),
        ({"expression": "0 9 * * *", "missed": "some"}, "missed= is one of latest, all, none"),
        ({"expression": "0 9 * * *", "payload": {"n": "x"}}, "ring refuses its payload: n"),
        ({"expression": "0 9 * * *", "name": "a\nb"}, "makes no job id"),
    ],
)
def test_a_wrong_schedule_is_refused_by_name(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    app = Bell(tmp_path, given).app
    with pytest.raises(AppError, match=reason):
        app.schedules()


def test_two_schedules_of_one_name_are_refused(tmp_path: Path) -> None:
    app = Bell(tmp_path, every_five_minutes(), every_five_minutes()).app
    with pytest.raises(AppError, match="two schedules named 'tick'"):
        app.schedules()


def test_a_schedule_of_no_handler_is_refused() -> None:
    app = App("bell")

    @app.cron("0 9 * * *")
    async def ring(ctx: Context, job: Item) -> None:
        """Never registered with @app.job."""

    with pytest.raises(AppError, match="is not a handler of app"):
        app.schedules()
