"""Several leases in one call: taken in one order by everybody, all or none, bounded as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.recorded import PARTITIONS as REPLAYED
from tests.support.recorded import deployment, dry_run, record
from tests.support.shop import Shop

from rewindq import App, Context, LeaseUnavailable, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.effects.errors import BadStep
from rewindq.engine.runtime.context import Context as HandlerContext
from rewindq.engine.runtime.leasing import Lease, LeaseHandle, in_order
from rewindq.engine.runtime.verify import verify

PARTITIONS = 4
QUICK = Retry(base=0.01, cap=0.05, max_attempts=40)


class Job(BaseModel):
    n: int


def spread(count: int, partitions: int = PARTITIONS) -> list[str]:
    """Resources at home on as many partitions as there are, in the order in which they are taken."""
    found = {partition_for(f"stock:{n}".encode(), partitions): f"stock:{n}" for n in range(200)}
    return sorted(list(found.values())[:count])


def test_opposite_orders_of_arguments_never_wait_for_each_other(tmp_path: Path) -> None:
    app = App("t")
    inside: list[str] = []
    first, second, third = spread(3)

    async def held(ctx: Context, *names: str) -> None:
        async with ctx.lease(*names, ttl=20, wait=25) as lease:
            assert inside == []
            inside.append(ctx.job_id)
            await asyncio.sleep(0.01)
            assert sorted(lease.tokens) == [first, second, third]
            inside.remove(ctx.job_id)

    @app.job(retry=QUICK)
    async def up(ctx: Context, job: Job) -> None:
        await held(ctx, first, second, third, first)

    @app.job(retry=QUICK)
    async def down(ctx: Context, job: Job) -> None:
        await held(ctx, third, second, first)

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    for n in range(8):
        shop.submit(("up", "down")[n % 2], {"n": n}, f"j{n}")

    report = shop.run()

    assert (report.succeeded, report.failed, report.retried) == (8, 0, 0)
    granted = [
        (r.job_id, event.resource)
        for r in shop.records()
        for event in r.events
        if isinstance(event.body, e.LeaseAcquired)
    ]
    assert len(granted) == 8 * 3, "what is named twice is taken once"
    assert verify(shop.deployment)["violations"] == []


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_all_or_none_within_the_whole_wait(tmp_path: Path, partitions: int) -> None:
    app = App("t")
    names = [f"stock:{n}" for n in range(3)] if partitions == 1 else spread(3)
    done, told, again = asyncio.Event(), [], []

    @app.job(retry=QUICK)
    async def hold(ctx: Context, job: Job) -> None:
        async with ctx.lease(names[2]):
            await ctx.enqueue("ask", {"n": 1}, job_id="asks")
            await done.wait()

    @app.job(retry=QUICK)
    async def ask(ctx: Context, job: Job) -> None:
        began = asyncio.get_running_loop().time()
        try:
            async with ctx.lease(*reversed(names), wait=0.3):
                raise AssertionError("two holders")
        except LeaseUnavailable as error:
            told.append((str(error), asyncio.get_running_loop().time() - began))
        async with ctx.lease(names[0], names[1], wait=5) as lease:
            again.append(dict(lease.tokens))
        done.set()

    shop = Shop(tmp_path, app, partitions=partitions)
    shop.submit("hold", {"n": 0}, "holds")

    report = shop.run()

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 0)
    ((message, took),) = told
    assert names[2] in message and "held by holds" in message
    assert took >= 0.3
    assert again == [{names[0]: 2, names[1]: 2}], "what was taken before the refusal was given back"


def test_what_is_waited_for_is_bounded_together(tmp_path: Path) -> None:
    """Each of three is free within 0.4 s of being asked for; together they take 1.2 s, and the wait is 0.6 s."""
    app = App("t")
    names = ["a", "b", "c"]
    held: list[int] = []
    asked: list[float] = []

    @app.job(retry=QUICK)
    async def hold(ctx: Context, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        async with ctx.lease(names[job.n]):
            held.append(job.n)
            while not asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(asked[0] + 0.4 * (job.n + 1) - clock())

    @app.job(retry=QUICK)
    async def ask(ctx: Context, job: Job) -> str:
        while len(held) < 3:
            await asyncio.sleep(0.01)
        asked.append(asyncio.get_running_loop().time())
        try:
            async with ctx.lease("c", "b", "a", wait=0.6):
                return "held for longer than the wait"
        except LeaseUnavailable as error:
            return str(error)

    shop = Shop(tmp_path, app)
    for n in range(3):
        shop.submit("hold", {"n": n}, f"h{n}")
    shop.submit("ask", {"n": 0}, "asks")

    shop.run()

    assert b"b is held by h1" in (shop.job("asks").result or b"")


def test_a_grant_in_the_moment_of_the_time_out_is_given_back(tmp_path: Path) -> None:
    app = App("t")
    deadline: list[float] = []
    got: list[str] = []

    @app.job()
    async def hold(ctx: Context, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        async with ctx.lease("a"):
            await ctx.enqueue("ask", {"n": 1})
            while not deadline:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)
            while clock() < deadline[0] + 0.05:
                pass  # the time-out is due, and what comes now comes just before it
            await asyncio.sleep(0)

    @app.job()
    async def ask(ctx: Context, job: Job) -> None:
        deadline.append(asyncio.get_running_loop().time() + 0.2)
        with pytest.raises(LeaseUnavailable):
            async with ctx.lease("a", wait=0.2):
                pass
        async with ctx.lease("a", wait=0.2):
            got.append(ctx.job_id)

    shop = Shop(tmp_path, app)
    shop.submit("hold", {"n": 0}, "holds")

    report = shop.run()

    assert (report.succeeded, report.retried, len(got)) == (2, 0, 1)


def test_the_jobs_own_resource_is_held_already(tmp_path: Path) -> None:
    app = App("t")
    found: list[dict[str, int]] = []

    @app.job(resource="order:{n}")
    async def own(ctx: Context, job: Job) -> None:
        async with ctx.lease("stock:7", f"order:{job.n}") as lease:
            found.append(dict(lease.tokens))
            assert not lease.lost

    @app.job(resource="order:{n}")
    def threaded(ctx: Any, job: Job) -> None:
        with ctx.lease(f"order:{job.n}", "stock:7") as lease:
            found.append(dict(lease.tokens))

    threaded.__annotations__["ctx"] = Context
    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    shop.submit("own", {"n": 1}, "j1", key="order:1")
    shop.run()
    shop.submit("threaded", {"n": 1}, "j2", key="order:1")

    report = shop.run()

    assert report.failed == 0
    assert found == [{"order:1": 1, "stock:7": 1}, {"order:1": 2, "stock:7": 2}]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), "at least one resource"),
        (("a", ""), "non-empty text"),
        (("a", "b\0"), "without NUL"),
        (("a", 5), "got 5"),
        (("a", "\ud800"), "lone surrogate"),
    ],
)
def test_what_is_no_resource_is_refused_before_the_first_is_asked_for(names: tuple[Any, ...], why: str) -> None:
    class Untouched:
        secrets: tuple[str, ...] = ()

    with pytest.raises(BadStep, match=why):
        HandlerContext(Untouched()).lease(*names)  # type: ignore[arg-type] - asked for nothing


def test_the_order_is_that_of_the_keys_bytes() -> None:
    assert in_order(["b", "\U0001f600", "\uffee", "B", "b", "a"]) == ["B", "a", "b", "\uffee", "\U0001f600"]


def test_a_lease_of_several_has_no_single_token() -> None:
    handles = [LeaseHandle("a", 3), LeaseHandle("b", 5)]
    lease = Lease(handles)
    misused: list[Callable[[], Any]] = [lambda: lease.token, lambda: lease.resource]
    for ask in misused:
        with pytest.raises(BadStep, match=r"lease\.\w+ is for a lease of one resource, and this holds a, b; use lease"):
            ask()
    assert dict(lease.tokens) == {"a": 3, "b": 5}
    assert not lease.lost
    handles[1].lost = True
    assert lease.lost
    assert (Lease(handles[:1]).token, Lease(handles[:1]).resource) == (3, "a")


def test_a_dry_run_takes_and_misses_the_same_leases(tmp_path: Path) -> None:
    async def handler(ctx: Context, job: Job) -> str:
        async with ctx.lease("order:1", *names) as lease:
            ctx.note("tokens", **{name.replace(":", "_"): token for name, token in lease.tokens.items()})
            try:
                async with ctx.lease(f"other:{job.n}", *names, wait=0.03):
                    return "twice"
            except LeaseUnavailable as error:
                return str(error)

    names = spread(2, REPLAYED)
    app = App("t")
    app.job(resource="order:{n}")(handler)
    place = deployment(tmp_path)
    with record(place, app, "handler", {"n": 1}, "order:1") as job:
        assert job.recording.attempt().outcome == "succeeded", job.recording.attempt().end
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences) == ("succeeded", [])
