"""Of those who ask for one effect at once, one calls; the others wait and get its very answer, and fail in nothing.

The guards: `decide_effect` (`core/decide.py`) decides in the order of the partition's log; `Gate._decided`
(`effects/gate.py`) waits for the one that calls, by `Run.decided` (`worker/run.py`); other content under a key is
refused whatever is known. The decisions one by one: `tests/unit/core/test_decide_effects.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.case_shops import MakeShop, make_shop
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.retry import Backoff
from rewindq.engine.runtime.client import Client

__all__ = ["make_shop"]
ASKING = 24
#: No failure of either class is retried: whoever is charged one ends in the investigation queue.
ONCE = Retry(max_attempts=1, per_class={FailureClass.CONCURRENCY: Backoff(max_attempts=1)})


class Order(BaseModel):
    """A small payload."""

    amount: int = 10
    more: dict[str, int] = {}


def _results(shop: Shop, count: int) -> set[bytes | None]:
    jobs = [shop.job(f"j{n}") for n in range(count)]
    assert {(job.status, job.attempt) for job in jobs} == {(s.SUCCEEDED, 1)}
    assert all(not job.failures for job in jobs)
    return {job.result for job in jobs}


def test_one_calls_and_all_have_its_answer(make_shop: MakeShop) -> None:
    _one_calls(make_shop, "async")


def test_one_calls_in_a_thread_and_all_have_its_answer(tmp_path: Path) -> None:
    _one_calls(lambda app: Shop(tmp_path, app), "thread")


def _one_calls(make_shop: MakeShop, kind: str) -> None:
    app, calls = App("t"), []
    all_ask = asyncio.Event()

    async def charge() -> dict[str, int]:
        calls.append(1)
        await all_ask.wait()
        return {"receipt": len(calls)}

    def charge_in_thread() -> dict[str, int]:
        calls.append(1)
        asyncio.run_coroutine_threadsafe(all_ask.wait(), loops[0]).result(20)
        return {"receipt": len(calls)}

    asked: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    @app.job(key="shared", retry=ONCE)
    async def pay(ctx: Context, job: Order) -> Any:
        loops[:] = [asyncio.get_running_loop()]
        asked.append(ctx.job_id)
        if len(asked) == ASKING:
            all_ask.set()
        return await ctx.effect("charge", charge if kind == "async" else charge_in_thread, key="k")

    shop = make_shop(app)
    for number in range(ASKING):
        shop.submit("pay", {}, f"j{number}", key="shared")
    shop.run(concurrency=ASKING)
    assert len(calls) == 1
    assert _results(shop, ASKING) == {values.encode({"receipt": 1})}
    names = Counter(type(body).__name__ for body in shop.bodies())
    assert (names["EffectStarted"], names["EffectSucceeded"], names["EffectSkipped"]) == (1, 1, ASKING - 1)
    assert not {"AttemptFailed", "RetryScheduled", "AttemptLost"} & set(names)


def test_when_the_one_that_calls_fails_the_next_one_calls(tmp_path: Path) -> None:
    app, calls = App("t"), []

    async def charge() -> str:
        calls.append(1)
        await asyncio.sleep(0.05)
        if len(calls) < 3:
            raise ValueError("declined")
        return "receipt"

    @app.job(key="shared", retry=Retry(max_attempts=5, base=0.01))
    async def pay(ctx: Context, job: Order) -> str:
        return str(await ctx.effect("charge", charge, key="k"))

    shop = Shop(tmp_path, app)
    for number in range(ASKING):
        shop.submit("pay", {}, f"j{number}", key="shared")
    shop.run(concurrency=ASKING)
    assert len(calls) == 3
    jobs = [shop.job(f"j{n}") for n in range(ASKING)]
    assert {job.result for job in jobs} == {b'"receipt"'}
    # Only who called and was declined was charged with it.
    assert sum(job.attempt - 1 for job in jobs) == 2


def test_when_the_one_that_calls_is_stopped_the_others_go_on(tmp_path: Path) -> None:
    """An operator cancels it, or its time is over: who waits looks the call up instead of waiting for ever."""
    app, calls = App("t"), []

    async def charge() -> str:
        calls.append(1)
        await asyncio.sleep(60)
        return "never"

    def find() -> str | None:
        return "found"

    @app.job(key="shared", retry=ONCE, timeout=0.3)
    async def slow(ctx: Context, job: Order) -> str:
        return str(await ctx.effect("charge", charge, key="k", on_doubt=find))

    @app.job(key="shared", retry=ONCE)
    async def pay(ctx: Context, job: Order) -> str:
        return str(await ctx.effect("charge", charge, key="k", on_doubt=find))

    shop = Shop(tmp_path, app)
    shop.submit("slow", {}, "slow", key="shared", priority=5)
    for number in range(3):
        shop.submit("pay", {}, f"j{number}", key="shared")
    shop.run()
    assert (len(calls), shop.job("slow").status) == (1, s.INVESTIGATION)
    assert _results(shop, 3) == {b'"found"'}


@pytest.mark.parametrize("ending", ["runs", "succeeded", "failed", "in doubt"])
def test_other_content_under_a_key_is_refused_before_any_call(tmp_path: Path, ending: str) -> None:
    app, calls = App("t"), []
    refused = asyncio.Event()

    async def charge(amount: int) -> str:
        calls.append(amount)
        if ending == "runs":
            await refused.wait()
        elif ending == "failed":
            raise ValueError("declined")
        elif ending == "in doubt":
            raise TimeoutError("silent")
        return "receipt"

    @app.job(key="shared", retry=ONCE)
    async def pay(ctx: Context, job: Order) -> str:
        try:
            return str(await ctx.effect("charge", charge, job.amount, key="k"))
        finally:
            if job.amount == 100:
                refused.set()

    shop = Shop(tmp_path, app)
    shop.submit("pay", {"amount": 10}, "first", key="shared", priority=5)
    before = None
    if ending != "runs":
        shop.run()
        before = shop.job("first")
    shop.submit("pay", {"amount": 100}, "other", key="shared")
    shop.run()
    other = shop.job("other")
    assert (other.status, other.attempt, calls) == (s.INVESTIGATION, 1, [10])
    assert other.failure is not None and other.failure.failure_class == FailureClass.VALIDATION
    (conflict,) = [body for body in shop.bodies("other") if isinstance(body, e.IdempotencyConflict)]
    assert {conflict.expected_digest, conflict.got_digest} == set(_digests(other.failure.reason))
    assert "a new intent needs a new key" in other.failure.reason
    assert shop.job("first") == before if before is not None else shop.job("first").status == s.SUCCEEDED


def _digests(text: str) -> list[str]:
    return [word.strip("(),;") for word in text.split() if word.startswith("sha256:")]


def test_equal_content_in_another_order_is_the_same(tmp_path: Path) -> None:
    app, calls = App("t"), []

    @app.job(key="shared", retry=ONCE)
    async def pay(ctx: Context, job: Order) -> Any:
        return await ctx.effect("charge", calls.append, job.more, key="k")

    shop = Shop(tmp_path, app)
    with Client(deployment=shop.deployment) as client:
        one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
        for more in (one, other):
            client.submit("pay", {"more": more, "amount": 1}, key="shared", job_id="j0")
        client.submit("pay", {"amount": 1, "more": other}, key="shared", job_id="j1")
    shop.run()
    _results(shop, 2)
    assert calls == [one]
    (duplicated,) = [body for body in shop.bodies("j0") if isinstance(body, e.SubmissionDuplicated)]
    assert duplicated.same
