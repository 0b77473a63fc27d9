"""Effects under global keys beside compensations, leases, and handlers that go on after a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.bank import (
    FULL,
    KEYS,
    PARTITIONS,
    QUICK,
    SHARED,
    Bank,
    Item,
    checked,
    submit,
)
from tests.support.shop import Shop

from rewindq import App, Context, InDoubt, Retry
from rewindq.engine.core import events as e
from rewindq.engine.runtime.client import Client


def test_a_compensated_call_is_made_anew_under_another_key(tmp_path: Path) -> None:
    bank, undone = Bank(), []
    app = App("bank")

    @app.compensation("refund")
    async def refund(result: str, n: int) -> None:
        undone.append(result)

    @app.job(retry=Retry(max_attempts=1))
    async def pay(ctx: Context, job: Item) -> str:
        receipt: str = await ctx.effect("charge", bank.charge, 0, global_key=SHARED, compensate="refund")
        if job.n:
            raise RuntimeError("no")
        return receipt

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, 0, "a", n=1)
    shop.run()
    assert undone == ["receipt 1"]
    checked(shop)
    submit(shop, 1, "b")
    submit(shop, 3, "c")
    shop.run()
    assert (shop.job("b").result, shop.job("c").result) == (b'"receipt 2"', b'"receipt 2"')
    assert bank.keys == {FULL, f"{FULL}/2"}
    checked(shop)


def test_a_handler_that_goes_on_after_a_failed_lookup_may_look_again(tmp_path: Path) -> None:
    """The claim under which nothing was called is given back at once, not at the attempt's end."""
    lookups: list[int] = []
    app = App("bank")

    async def silent(number: int) -> str:
        raise TimeoutError("no answer")

    bank = Bank(silent)

    async def find(n: int) -> str:
        lookups.append(n)
        if len(lookups) == 1:
            raise ConnectionError("the bank is closed")
        return "found"

    @app.job(retry=QUICK)
    async def pay(ctx: Context, job: Item) -> str:
        options: dict[str, Any] = {"global_key": SHARED, "on_doubt": find}
        if ctx.attempt == 1:
            await ctx.effect("charge", bank.charge, 0, **options)
        with pytest.raises(InDoubt):
            await ctx.effect("charge", bank.charge, 0, **options)
        receipt: str = await ctx.effect("charge", bank.charge, 0, **options)
        return receipt

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    assert (shop.job("a").result, shop.job("a").attempt, len(bank.calls)) == (b'"found"', 2, 1)
    checked(shop)


@pytest.mark.parametrize("partition", [0, 2])
def test_a_doubt_that_another_job_has_ended_keeps_no_compensation_back(tmp_path: Path, partition: int) -> None:
    undone: list[str] = []
    app = App("bank")

    async def silent(number: int) -> str:
        raise TimeoutError("no answer")

    bank = Bank(silent)

    @app.compensation("refund")
    async def refund(result: str, n: int) -> None:
        undone.append(result)

    @app.job(retry=Retry(max_attempts=1))
    async def pay(ctx: Context, job: Item) -> str:
        find = (lambda n: "found") if job.n else None
        receipt: str = await ctx.effect("charge", bank.charge, 0, global_key=SHARED, compensate="refund", on_doubt=find)
        if not job.n:
            raise RuntimeError("no")
        return receipt

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, partition, "a")
    shop.run()
    submit(shop, 1, "b", n=1)
    shop.run()
    assert shop.job("b").result == b'"found"'
    with Client(deployment=shop.deployment) as client:
        client.retry("a", "b has found out")
    shop.run()
    assert undone == ["found"]
    checked(shop)


@pytest.mark.parametrize("partition", [1, 2])
def test_a_lease_that_was_lost_while_it_waited_lets_nothing_be_called(tmp_path: Path, partition: int) -> None:
    app = App("bank")
    asked = asyncio.Event()

    async def fails_once(number: int) -> str:
        if number == 1:
            submit(shop, partition, "b", n=1)
            await asked.wait()
            raise ValueError("card declined")
        return "receipt"

    bank = Bank(fails_once)

    @app.job(retry=Retry(max_attempts=1))
    async def pay(ctx: Context, job: Item) -> None:
        async with ctx.lease(KEYS[partition] if job.n else "other") as lease:
            paying = asyncio.ensure_future(ctx.effect("charge", bank.charge, 0, global_key=SHARED))
            while job.n and not asked.is_set():
                await asyncio.sleep(0.01)
                if "ClaimRequested" in shop.names("b"):
                    lease.handles[0].lost = True
                    asked.set()
            await paying

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    failed = next(body for body in shop.bodies("b") if isinstance(body, e.AttemptFailed))
    assert failed.reason == "a lease was lost"
    started = [r.attempt for r in shop.records("b") for event in r.events if isinstance(event.body, e.EffectStarted)]
    assert 1 not in started
    checked(shop)
