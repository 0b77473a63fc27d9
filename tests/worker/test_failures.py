"""How attempts fail: budgets by class, effects that nobody awaits, and the rule that gave a failure its class."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Backoff, Context, FailureClass, Retry
from rewindq.engine.core import state as s
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.trace import job_detail

SOON = Retry(max_attempts=3, base=0.01, cap=0.05)


class Item(BaseModel):
    """A small payload."""

    n: int = 0


def test_a_job_that_loses_its_worker_three_times_is_poison(tmp_path: Path) -> None:
    app = App("t")

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        await asyncio.sleep(60)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def die(worker) -> None:  # type: ignore[no-untyped-def]
        while "a" not in worker._attempts.running or worker._attempts.running["a"].task is None:
            await asyncio.sleep(0.01)
        worker.failure = Crash()
        worker.wake()

    for _ in range(3):
        with pytest.raises(Crash):
            shop.run(until=lambda report: False, during=die)
    shop.run()
    job = shop.job("a")
    assert (job.status, job.attempt, job.lost) == (s.INVESTIGATION, 3, 3)


class Crash(Exception):
    """Stands for a worker that is gone without an orderly end."""


def test_per_class_budgets(tmp_path: Path) -> None:
    app = App("t")
    app.classify(LookupError, FailureClass.DEPENDENCY)
    policy = Retry(
        max_attempts=2,
        base=0.001,
        per_class={FailureClass.DEPENDENCY: Backoff(max_attempts=4, base=0.001, cap=0.01)},
    )

    @app.job(retry=policy)
    async def work(ctx: Context, job: Item) -> None:
        raise LookupError

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    assert (shop.job("a").status, shop.job("a").attempt) == (s.INVESTIGATION, 4)


def test_a_handler_that_does_not_await_its_effect_has_not_succeeded(tmp_path: Path) -> None:
    app = App("t")
    left: list[asyncio.Task[object]] = []

    async def slow() -> None:
        await asyncio.sleep(60)

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        left.append(asyncio.create_task(ctx.effect("call", slow, key="k")))
        while "EffectStarted" not in shop.names("a"):
            await asyncio.sleep(0.01)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    for task in left:
        task.cancel()
    job = shop.job("a")
    assert job.status == s.INVESTIGATION
    assert job.failure is not None
    assert "await every effect" in job.failure.reason
    assert "EffectInDoubt" in shop.names("a")


def test_an_attempt_says_which_rule_made_its_failures_class(tmp_path: Path) -> None:
    app = App("t")

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        raise ConnectionError("down")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    attempts = job_detail(Past(shop.deployment), "a")["attempts"]
    assert [attempt["failure"]["rule"] for attempt in attempts] == ["type ConnectionError"] * 3
