"""What a handler's `ctx` and payload give: secrets, large bodies, children, homes of keys, leases."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, SecretStr
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values

SOON = Retry(max_attempts=3, base=0.01, cap=0.05)


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Card(BaseModel):
    """A payload with a secret."""

    number: SecretStr
    amount: Decimal


def test_secrets_reach_the_handler_and_no_event_but_the_payload(tmp_path: Path) -> None:
    app = App("t")
    seen: list[str] = []

    @app.job(retry=Retry(max_attempts=1))
    async def pay(ctx: Context, job: Card) -> None:
        number = job.number.get_secret_value()
        seen.append(number)
        ctx.note("card", number=number)
        ctx.decide("which", number)
        await ctx.effect("call", lambda n: None, number, key="k")
        raise RuntimeError(f"card {number} declined")

    shop = Shop(tmp_path, app)
    shop.submit("pay", {"number": "4000-1234", "amount": "1.00"}, "a")
    shop.run()
    assert seen == ["4000-1234"]
    for body in shop.bodies("a"):
        if not isinstance(body, e.JobAccepted):
            assert "4000-1234" not in str(body), body
        else:
            assert body.secrets == ("number",)


def test_large_bodies_go_to_the_blob_store(tmp_path: Path) -> None:
    app = App("t")

    @app.job()
    async def work(ctx: Context, job: Item) -> str:
        answer = await ctx.effect("call", lambda: "a" * 50_000, key="k")
        return str(answer) + "!"

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    job = shop.job("a")
    assert job.result is None
    assert job.result_ref is not None
    assert shop.deployment.blobs is not None
    assert values.decode(shop.deployment.blobs.get(job.result_ref)) == "a" * 50_000 + "!"


def test_children_are_enqueued_once_whatever_the_attempts(tmp_path: Path) -> None:
    app = App("t")
    ran: list[int] = []

    @app.job()
    async def child(ctx: Context, job: Item) -> None:
        ran.append(job.n)

    @app.job(retry=SOON)
    async def parent(ctx: Context, job: Item) -> None:
        await ctx.enqueue(child, Item(n=9))
        if ctx.attempt == 1:
            raise ConnectionError

    shop = Shop(tmp_path, app, partitions=4)
    shop.submit("parent", {}, "p")
    shop.run()
    assert ran == [9]
    assert shop.job("p.enqueue-child").status == s.SUCCEEDED


def test_a_submission_without_key_is_forwarded_to_its_resources_home(tmp_path: Path) -> None:
    app = App("t")

    @app.job(resource="item:{n}")
    async def work(ctx: Context, job: Item) -> None:
        await ctx.save("item", job.n, {"n": job.n}, expected=0)

    shop = Shop(tmp_path, app, partitions=4)
    for n in range(8):
        shop.submit("work", {"n": n}, f"j{n}")
    shop.run()
    assert all(shop.job(f"j{n}").status == s.SUCCEEDED for n in range(8))
    assert any(isinstance(body, e.SubmissionForwarded) for body in shop.bodies())


def test_leases_exclude_each_other_and_their_tokens_grow(tmp_path: Path) -> None:
    app = App("t")
    inside: list[int] = []
    tokens: list[int] = []

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        async with ctx.lease("stock:1", ttl=5, wait=10) as lease:
            inside.append(job.n)
            assert inside == [job.n]
            tokens.append(lease.token)
            await asyncio.sleep(0.005)
            inside.remove(job.n)

    shop = Shop(tmp_path, app)
    for n in range(6):
        shop.submit("work", {"n": n}, f"j{n}")
    shop.run()
    assert tokens == [1, 2, 3, 4, 5, 6]
    assert all(shop.job(f"j{n}").status == s.SUCCEEDED for n in range(6))


class Unprintable(Exception):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_what_cannot_be_printed_or_encoded_is_recorded_all_the_same(tmp_path: Path) -> None:
    app = App("t")
    once = Retry(max_attempts=1)

    @app.job(retry=once)
    async def unprintable(ctx: Context, job: Item) -> None:
        raise Unprintable

    @app.job(retry=once)
    async def surrogate(ctx: Context, job: Item) -> None:
        raise RuntimeError("caf\udce9")

    @app.job(retry=once)
    async def effect(ctx: Context, job: Item) -> None:
        def fail() -> None:
            raise Unprintable

        await ctx.effect("call", fail, key="k")

    @app.job(retry=once)
    async def step(ctx: Context, job: Item) -> None:
        ctx.decide("caf\udce9", True)
        ctx.note("later")

    shop = Shop(tmp_path, app)
    for name in ("unprintable", "surrogate", "effect", "step"):
        shop.submit(name, {}, name)
    shop.run()
    for name in ("unprintable", "surrogate", "effect", "step"):
        assert shop.job(name).status == s.INVESTIGATION, name


def test_rules_and_validators_that_raise_anything_park_their_job_only(tmp_path: Path) -> None:
    app = App("t")

    @app.job(key=lambda job: {}["missing"])
    async def broken(ctx: Context, job: Item) -> None: ...

    @app.job()
    async def fine(ctx: Context, job: Item) -> None: ...

    shop = Shop(tmp_path, app)
    shop.submit("broken", {}, "broken")
    shop.submit("fine", {}, "fine")
    shop.submit("fine", {}, "far", due=2**62)
    shop.run()
    assert shop.job("broken").status == s.INVESTIGATION
    assert shop.job("far").status == s.INVESTIGATION
    assert shop.job("fine").status == s.SUCCEEDED


def test_two_jobs_that_ask_for_one_key_make_one_call(tmp_path: Path) -> None:
    app = App("t")
    calls: list[int] = []
    done: list[int] = []

    async def call(n: int) -> str:
        calls.append(n)
        if len(calls) == 1:
            await asyncio.sleep(60)
        done.append(n)
        return "done"

    async def find(n: int) -> str | None:
        await asyncio.sleep(0.02)
        return "done" if done else None

    @app.job(key="shared", retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", call, 1, key="k", on_doubt=find, timeout=0.1)

    shop = Shop(tmp_path, app)
    for job_id in ("a", "b"):
        shop.submit("work", {}, job_id, key="shared")
    shop.run()
    assert done == [1]
    succeeded = [body for body in shop.bodies() if isinstance(body, e.EffectSucceeded)]
    assert len(succeeded) == 1
    assert {shop.job(job_id).status for job_id in ("a", "b")} == {s.SUCCEEDED}


def test_an_attempt_that_asks_twice_at_once_for_one_key_is_told_so(tmp_path: Path) -> None:
    """Each new attempt would meet the same: it is the handler that has to be mended."""
    app = App("t")
    calls: list[int] = []

    async def call() -> None:
        calls.append(1)
        await asyncio.sleep(0.05)

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        await asyncio.gather(*(ctx.effect("call", call, key="k", idempotent=True) for _ in range(2)))

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "twice")
    shop.run()
    job = shop.job("twice")
    assert (job.status, job.attempt) == (s.INVESTIGATION, 1)
    assert len(calls) <= 1
    assert job.failure is not None
    assert "twice is making the call" in job.failure.reason
    assert "await it before" in job.failure.reason
