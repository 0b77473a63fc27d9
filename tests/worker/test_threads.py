"""Plain functions run in threads, which nobody can end: nothing may overlap with one whose time is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, InDoubt, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.effects.errors import AttemptEnded
from rewindq.processors.worker.worker import Worker

SOON = Retry(max_attempts=2, base=0.001, cap=0.001)
BOUND = 10.0


class Item(BaseModel):
    n: int = 0


class Gate:
    """A function that hangs until it is let go, and how many of its calls were under way at once."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.calls = 0
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def hang(self) -> str:
        with self._lock:
            self.calls += 1
            self._now += 1
            self.most = max(self.most, self._now)
        self.entered.set()
        assert self.go.wait(BOUND)
        with self._lock:
            self._now -= 1
        return "done"


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.go.set()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.005)


def overdue(worker: Worker, job_id: str) -> bool:
    run = worker._attempts.running.get(job_id)
    return run is not None and run.overdue is not None


@pytest.mark.parametrize("where", ["handler", "effect", "lookup"])
def test_a_stop_iteration_in_a_thread_ends_the_attempt(tmp_path: Path, where: str) -> None:
    app = App("t")

    def stop() -> None:
        next(iter(()))

    def unsure() -> None:
        raise InDoubt("cannot know")

    @app.job(retry=SOON)
    def work(ctx: Any, job: Item) -> None:
        if where == "handler":
            stop()
        elif where == "effect":
            ctx.effect("call", stop, key="k")
        else:
            ctx.effect("call", unsure, key="k", on_doubt=stop)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    job = shop.job("a")
    assert (job.status, job.attempt) == (s.INVESTIGATION, 2)
    assert job.failure is not None and "raised StopIteration" in job.failure.reason


def test_no_attempt_begins_before_the_thread_of_the_last_one_has_ended(tmp_path: Path, gate: Gate) -> None:
    app = App("t")
    log: list[str] = []
    refused: list[str] = []

    def late(ctx: Any) -> None:
        steps: dict[str, Callable[[], Any]] = {
            "load": lambda: ctx.load("item", 1),
            "save": lambda: ctx.save("item", 1, {"x": 1}, expected=0),
            "effect": lambda: ctx.effect("call", lambda: log.append("effect"), key="k"),
            "decide": lambda: ctx.decide("d", 1),
            "now": ctx.now,
            "uuid": ctx.uuid,
            "note": lambda: ctx.note("n"),
            "lease": lambda: ctx.lease("item:1").__enter__(),
            "enqueue": lambda: ctx.enqueue("work", Item()),
        }
        for name, step in steps.items():
            try:
                step()
            except AttemptEnded:
                refused.append(name)

    @app.job(resource="item:1", retry=SOON, timeout=0.05)
    def work(ctx: Any, job: Item) -> None:
        log.append(f"{ctx.job_id}/{ctx.attempt}")
        if ctx.job_id == "a" and ctx.attempt == 1:
            gate.hang()
            late(ctx)
            log.append("over")

    @app.job(resource="item:1")
    def other(ctx: Any, job: Item) -> None:
        log.append("other")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a", key="item:1")

    async def during(worker: Worker) -> None:
        await until(lambda: overdue(worker, "a"))
        shop.submit("other", {}, "b", key="item:1")
        await until(lambda: len(worker._attempts.queues[0]) == 1)
        assert log == ["a/1"]
        gate.go.set()

    shop.run(during=during)
    assert log[:2] == ["a/1", "over"]
    assert sorted(log[2:]) == ["a/2", "other"]
    assert refused == ["load", "save", "effect", "decide", "now", "uuid", "note", "lease", "enqueue"]
    assert (shop.job("a").status, shop.job("b").status) == (s.SUCCEEDED, s.SUCCEEDED)


def hanging(folder: Path, gate: Gate) -> Shop:
    """A shop with one job, `a`, whose thread outlives its time."""
    app = App("t")

    @app.job(retry=SOON, timeout=0.02)
    def work(ctx: Any, job: Item) -> None:
        gate.hang()

    shop = Shop(folder, app)
    shop.submit("work", {}, "a")
    return shop


def test_a_thread_that_does_not_end_is_for_a_person(tmp_path: Path, gate: Gate) -> None:
    shop = hanging(tmp_path, gate)
    shop.run(thread_wait=0.02)
    job = shop.job("a")
    assert (job.status, job.attempt, gate.calls) == (s.INVESTIGATION, 1, 1)
    assert job.failure is not None and job.failure.failure_class == "timeout"
    assert "its thread still runs" in job.failure.reason


def test_nothing_is_undone_beside_a_thread_that_still_runs(tmp_path: Path, gate: Gate) -> None:
    app = App("t")
    undone: list[str] = []

    @app.compensation("undo")
    def undo(*args: Any) -> None:
        undone.append("undone")

    @app.job(retry=SOON, timeout=0.5)
    def work(ctx: Any, job: Item) -> None:
        ctx.effect("call", lambda: "done", key="k", compensate="undo")
        gate.hang()

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run(thread_wait=0.02)
    assert gate.calls == 1
    job = shop.job("a")
    assert (job.status, undone) == (s.INVESTIGATION, [])
    assert job.failure is not None and "not compensated: call (the thread of an earlier" in job.failure.reason


def test_a_shutdown_does_not_give_back_what_still_runs(tmp_path: Path, gate: Gate) -> None:
    shop = hanging(tmp_path, gate)

    async def during(worker: Worker) -> None:
        await until(lambda: overdue(worker, "a"))
        worker.stop()

    shop.run(until=lambda report: False, during=during, grace=0.02)
    assert shop.job("a").status == s.INVESTIGATION


def test_what_a_call_came_to_after_the_time_out_is_recorded(tmp_path: Path, gate: Gate) -> None:
    app = App("t")

    @app.job(retry=SOON, timeout=0.05)
    def work(ctx: Any, job: Item) -> str:
        answer: str = ctx.effect("call", gate.hang, key="k")
        return answer

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def during(worker: Worker) -> None:
        await until(lambda: overdue(worker, "a") and gate.entered.is_set())
        gate.go.set()

    shop.run(during=during)
    assert (shop.job("a").status, shop.job("a").attempt, gate.calls) == (s.SUCCEEDED, 2, 1)
    names = shop.names("a")
    assert (names.count("EffectSucceeded"), names.count("EffectSkipped"), names.count("EffectInDoubt")) == (1, 1, 0)


def test_a_job_cancelled_while_its_thread_runs_on_is_cancelled_when_that_ends(tmp_path: Path, gate: Gate) -> None:
    shop = hanging(tmp_path, gate)

    async def during(worker: Worker) -> None:
        await until(lambda: overdue(worker, "a"))
        shop.input(shop.topics.commands, "a", e.CancelCommand("c1", "enough", "me"), "a")
        await until(lambda: worker._attempts.running["a"].cancelled is not None)
        gate.go.set()

    shop.run(during=during)
    assert (shop.job("a").status, gate.calls) == (s.CANCELLED, 1)


@pytest.mark.parametrize("again", ["sent again", "looked up", "same attempt"])
def test_no_call_is_made_or_looked_up_while_the_first_one_runs(tmp_path: Path, gate: Gate, again: str) -> None:
    app = App("t")
    looked: list[bool] = []

    def look() -> str | None:
        looked.append(gate.go.is_set())
        return "found"

    @app.job(retry=Retry(max_attempts=9, base=0.001, cap=0.001))
    async def work(ctx: Context, job: Item) -> str:
        rules: dict[str, Any] = {"on_doubt": look} if again == "looked up" else {"idempotent": True}
        for _ in range(2):
            try:
                answer: str = await ctx.effect("call", gate.hang, key="k", timeout=0.05, **rules)
            except InDoubt:
                if again != "same attempt":
                    raise
                continue
            return answer
        return "never"

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def during(worker: Worker) -> None:
        waited: list[str] = []
        over = worker._attempts._effects.over

        async def noted(name: str) -> bool:
            waited.append(name)
            return await over(name)

        worker._attempts._effects.over = noted  # type: ignore[method-assign]
        await until(lambda: waited or looked or gate.calls > 1)
        gate.go.set()

    shop.run(during=during)
    assert (shop.job("a").status, gate.most) == (s.SUCCEEDED, 1)
    assert (gate.calls, looked) == ((1, [True]) if again == "looked up" else (2, []))


def test_an_effect_whose_thread_does_not_end_is_for_a_person(tmp_path: Path, gate: Gate) -> None:
    app = App("t")

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", gate.hang, key="k", timeout=0.02, idempotent=True)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run(thread_wait=0.02)
    job = shop.job("a")
    assert (job.status, job.attempt, gate.calls) == (s.INVESTIGATION, 2, 1)
    assert job.failure is not None and "the thread of its first call still runs" in job.failure.reason
