"""Resources that are at home on another partition than the job: read, changed and leased by request and reply."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.effects.errors import LeaseUnavailable, WriteRefused
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.trace import trace_shown
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.remote import Remote
from rewindq.processors.worker.worker import Worker

PARTITIONS = 4
QUICK = Retry(base=0.01, cap=0.05, max_attempts=40)


def at_home(partition: int, name: str) -> str:
    """An id whose resource `{name}:{id}` is at home on a partition."""
    return next(str(n) for n in range(1000) if partition_for(f"{name}:{n}".encode(), PARTITIONS) == partition)


STOCK = at_home(2, "stock")
ORDERS = [str(n) for n in range(200) if partition_for(f"order:{n}".encode(), PARTITIONS) != 2]


class Order(BaseModel):
    order_id: str


class Killed(Exception):
    """Ends a worker as a kill does."""


def counting_app() -> App:
    app = App("shop")

    @app.job(resource="order:{order_id}", retry=QUICK)
    async def take(ctx: Context, job: Order) -> int:
        stock = await ctx.load("stock", STOCK)
        return await ctx.save("stock", STOCK, {"taken": stock.get("taken", 0) + 1}, expected=stock.version)

    return app


def test_a_job_changes_what_is_at_home_elsewhere(tmp_path: Path) -> None:
    shop = Shop(tmp_path, counting_app(), partitions=PARTITIONS)
    shop.submit("take", {"order_id": ORDERS[0]}, "j1", key=f"order:{ORDERS[0]}")

    report = shop.run()

    assert (report.succeeded, report.failed) == (1, 0)
    assert shop.aggregate(f"stock:{STOCK}").data == {"taken": 1}
    assert shop.job("j1").result == b"1"
    with Past(shop.deployment) as past:
        events = trace_shown(past, "j1")["events"]
    told = [event["type"] for event in events if event["resource"] == f"stock:{STOCK}"]
    assert told == [
        "RemoteRequested",
        "RemoteAnswered",
        "RemoteRequested",
        "StateChanged",
        "RemoteAnswered",
    ], "both sides in one trace, in the order of cause and effect"
    changed = next(event for event in events if event["type"] == "StateChanged")
    assert changed["position"].startswith("p2@")
    assert verify(shop.deployment)["violations"] == []


def test_no_update_is_lost_when_jobs_of_all_partitions_change_one_resource(tmp_path: Path) -> None:
    shop = Shop(tmp_path, counting_app(), partitions=PARTITIONS)
    for number, order in enumerate(ORDERS[:40]):
        shop.submit("take", {"order_id": order}, f"j{number}", key=f"order:{order}")

    report = shop.run(concurrency=10)

    assert (report.succeeded, report.failed) == (40, 0)
    assert shop.aggregate(f"stock:{STOCK}").data == {"taken": 40}
    refused = [body for body in shop.bodies() if isinstance(body, e.WriteConflict)]
    answers = [body for body in shop.bodies() if isinstance(body, e.RemoteAnswered) and body.outcome == "conflict"]
    assert len(refused) == len(answers), "every refused write is told on both sides"
    assert verify(shop.deployment)["violations"] == []


def test_a_lease_elsewhere_excludes_and_its_tokens_grow(tmp_path: Path) -> None:
    app = App("shop")
    inside: list[str] = []
    seen: list[tuple[str, int]] = []

    @app.job(resource="order:{order_id}", retry=QUICK)
    async def take(ctx: Context, job: Order) -> None:
        async with ctx.lease(f"stock:{STOCK}", ttl=20, wait=20) as lease:
            assert not inside
            inside.append(ctx.job_id)
            stock = await ctx.load("stock", STOCK)
            version = await ctx.save("stock", STOCK, {"n": stock.get("n", 0) + 1}, expected=stock.version)
            seen.append((ctx.job_id, lease.token))
            assert version == len(seen)
            inside.remove(ctx.job_id)

    @app.job(resource="stock:{order_id}")
    async def count(ctx: Context, job: Order) -> None:
        assert not inside
        inside.append(ctx.job_id)
        await asyncio.sleep(0)
        inside.remove(ctx.job_id)

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    for number, order in enumerate(ORDERS[:12]):
        shop.submit("take", {"order_id": order}, f"j{number}", key=f"order:{order}")
    shop.submit("count", {"order_id": STOCK}, "own", key=f"stock:{STOCK}")

    report = shop.run(concurrency=20)

    assert (report.succeeded, report.failed, report.retried) == (13, 0, 0)
    tokens = [token for _, token in seen]
    assert tokens == sorted(set(tokens))
    assert shop.aggregate(f"stock:{STOCK}").data == {"n": 12}
    assert not [tail for tail in shop.fold() if tail.states.lent(f"stock:{STOCK}") is not None]
    assert verify(shop.deployment)["violations"] == []


def test_a_lease_elsewhere_is_refused_after_the_wait_naming_its_holder(tmp_path: Path) -> None:
    app = App("shop")
    refusals: list[str] = []
    done = asyncio.Event()

    @app.job(resource="order:{order_id}", retry=QUICK)
    async def hold(ctx: Context, job: Order) -> None:
        async with ctx.lease(f"stock:{STOCK}"):
            await ctx.enqueue("ask", {"order_id": ORDERS[1]}, key=f"order:{ORDERS[1]}", job_id="asks")
            await done.wait()

    @app.job(resource="order:{order_id}", retry=QUICK)
    async def ask(ctx: Context, job: Order) -> None:
        try:
            async with ctx.lease(f"stock:{STOCK}", wait=0.05):
                raise AssertionError("two holders")
        except LeaseUnavailable as error:
            refusals.append(str(error))
            done.set()

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    shop.submit("hold", {"order_id": ORDERS[0]}, "holds", key=f"order:{ORDERS[0]}")

    report = shop.run()

    assert (report.succeeded, report.failed) == (2, 0)
    assert len(refusals) == 1 and "held by holds" in refusals[0]
    assert "LeaseRefused" in [type(body).__name__ for body in shop.bodies("asks")]


def test_a_holder_that_cannot_renew_loses_its_lease_and_can_change_nothing(tmp_path: Path) -> None:
    """The handler holds the interpreter for longer than the TTL: the lease passes on, and the loss is noticed."""
    import time

    app = App("shop")
    acted: list[str] = []

    @app.job(resource="order:{order_id}")
    async def freeze(ctx: Context, job: Order) -> None:
        async with ctx.lease(f"stock:{STOCK}", ttl=0.2):
            stock = await ctx.load("stock", STOCK)
            began = time.monotonic()
            while time.monotonic() - began < 0.5:
                pass
            await ctx.effect("pay", lambda: acted.append("paid"), key="pay")
            await ctx.save("stock", STOCK, {"by": "frozen"}, expected=stock.version)

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    shop.submit("freeze", {"order_id": ORDERS[0]}, "frozen", key=f"order:{ORDERS[0]}")

    shop.run(lambda report: report.retried >= 1)

    assert acted == []
    assert shop.aggregate(f"stock:{STOCK}").version == 0
    failed = next(body for body in shop.bodies("frozen") if isinstance(body, e.AttemptFailed))
    assert (failed.failure_class, failed.reason) == ("concurrency", "a lease was lost")
    assert "LeaseExpired" in shop.names("frozen")


def test_a_stale_token_is_fenced_at_its_home(tmp_path: Path) -> None:
    app = App("shop")
    told: list[str] = []

    @app.job(resource="order:{order_id}", retry=QUICK)
    async def first(ctx: Context, job: Order) -> None:
        async with ctx.lease(f"stock:{STOCK}", ttl=20):
            pass

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    for number in range(2):
        shop.submit("first", {"order_id": ORDERS[number]}, f"j{number}", key=f"order:{ORDERS[number]}")
    shop.run()
    request = e.ResourceRequest("late/1/1", "save", 0, b'{"x":1}', (), 0)
    about: dict[str, Any] = {"resource": f"stock:{STOCK}", "fencing_token": 1, "step": "save"}
    record = e.EventRecord(e.UNNUMBERED, 5, 1_790_000_000_000_000, 9, "w", "late", 1, (e.Event(request, **about),))
    shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=2)

    shop.run()

    told = shop.names("late")
    assert told == ["WriteFenced"]
    assert shop.aggregate(f"stock:{STOCK}").version == 0


@pytest.mark.parametrize("resource, partition, why", [("stock:1x", 9, "partition 9"), ("stock:" + STOCK, 0, "epoch 1")])
def test_a_request_that_cannot_be_meant_is_refused_by_name(
    tmp_path: Path, resource: str, partition: int, why: str
) -> None:
    """From a partition that does not exist; from an owner that was replaced."""
    shop = Shop(tmp_path, counting_app(), partitions=PARTITIONS)
    home = partition_for(resource.encode(), PARTITIONS)
    for number, epoch in enumerate((3, 1)):
        request = e.ResourceRequest(f"r{number}", "save", partition, b'{"x":1}', (), 0)
        event = e.Event(request, resource=resource, step="save")
        record = e.EventRecord(e.UNNUMBERED, 5, 1_790_000_000_000_000, epoch, "w", f"late{number}", 1, (event,))
        shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=home)

    shop.run()

    refused = [body for body in shop.bodies() if isinstance(body, e.RequestRefused)]
    assert refused and why in refused[-1].reason
    assert shop.aggregate(resource).version == (1 if why == "epoch 1" else 0)


def test_a_write_on_an_old_version_elsewhere_tells_who_was_first(tmp_path: Path) -> None:
    app = App("shop")
    errors: list[str] = []

    @app.job(resource="order:{order_id}")
    async def write(ctx: Context, job: Order) -> None:
        await ctx.save("stock", STOCK, {"by": ctx.job_id}, expected=0)
        try:
            await ctx.save("stock", STOCK, {"by": "again"}, expected=0)
        except WriteRefused as error:
            errors.append(str(error))

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    shop.submit("write", {"order_id": ORDERS[0]}, "w1", key=f"order:{ORDERS[0]}")

    shop.run()

    assert errors == [f"stock:{STOCK} is at version 1, expected 0: w1 has written since"]


@pytest.mark.parametrize("asker_lives", [True, False])
def test_a_grant_to_an_attempt_that_is_over_ends(
    tmp_path: Path, asker_lives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The asker's owner gives it back; without one, the home's new owner holds it for one TTL and lets it expire."""
    app = App("shop")

    @app.job(resource="order:{order_id}")
    async def late(ctx: Context, job: Order) -> int:
        async with ctx.lease(f"stock:{STOCK}", wait=20) as lease:
            return lease.token

    if not asker_lives:
        monkeypatch.setattr(Remote, "_refuse_grant", lambda *_: None)
    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    request = e.ResourceRequest("gone/1/1", "lease", 0, ttl=400, wait=0)
    event = e.Event(request, resource=f"stock:{STOCK}", step="lease")
    record = e.EventRecord(e.UNNUMBERED, 5, 1_790_000_000_000_000, 1, "w", "gone", 1, (event,))
    shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=2)
    shop.run(lambda report: any(isinstance(body, e.LeaseAcquired) for body in shop.bodies("gone")))
    shop.submit("late", {"order_id": ORDERS[0]}, "late", key=f"order:{ORDERS[0]}")

    report = shop.run()

    assert report.succeeded == 1
    assert shop.job("late").result == b"2"
    assert shop.names("gone") == ["LeaseAcquired", "LeaseReleased" if asker_lives else "LeaseExpired"]
    assert shop.fold()[2].states.lent(f"stock:{STOCK}") is None


def test_what_a_lost_attempt_held_or_waited_for_elsewhere_is_free_with_it(tmp_path: Path) -> None:
    """Not only when its TTL has passed: the job's own next attempt would wait for itself, and all others with it."""
    app, tries = App("shop"), []

    @app.job(resource="order:{order_id}")
    async def hold(ctx: Context, job: Order) -> int:
        tries.append((ctx.job_id, ctx.attempt))
        async with ctx.lease(f"stock:{STOCK}", ttl=600, wait=20) as lease:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
            return lease.token

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    homes = {partition_for(f"order:{order}".encode(), PARTITIONS): order for order in ORDERS}
    for job_id, order in zip("ab", homes.values(), strict=False):
        shop.submit("hold", {"order_id": order}, job_id, key=f"order:{order}")

    async def kill(worker: Worker) -> None:
        while not {"LeaseAcquired", "LeaseRequested"} <= {*shop.names("a"), *shop.names("b")}:
            await asyncio.sleep(0.005)
        worker.failure = Killed()
        worker.wake()

    with pytest.raises(Killed):
        shop.run(until=lambda report: False, during=kill)
    report = shop.run()

    assert (report.succeeded, report.failed) == (2, 0)
    assert sorted(tries) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    (expired,) = [body for body in shop.bodies() if isinstance(body, e.LeaseExpired)]
    assert expired.holder in ("a", "b")
    assert verify(shop.deployment)["violations"] == []


def test_it_is_free_also_where_a_claim_of_the_lost_attempt_is_settled_first(tmp_path: Path) -> None:
    """Whatever tells a home of a partition's new owner first, it ends what attempts of the former one hold there."""
    app, calls = App("shop"), []
    global_key = next(f"pay:{n}" for n in range(1000) if partition_for(f"pay:{n}".encode(), PARTITIONS) == 2)

    async def never() -> None:
        calls.append("called")
        await asyncio.Event().wait()

    @app.job(resource="order:{order_id}")
    async def hold(ctx: Context, job: Order) -> int:
        async with ctx.lease(f"stock:{STOCK}", ttl=600, wait=20) as lease:
            if ctx.attempt == 1:
                await ctx.effect("pay", never, global_key=global_key)
            return lease.token

    async def kill(worker: Worker) -> None:
        while not calls:
            await asyncio.sleep(0.005)
        worker.failure = Killed()
        worker.wake()

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    shop.submit("hold", {"order_id": ORDERS[0]}, "a", key=f"order:{ORDERS[0]}")
    with pytest.raises(Killed):
        shop.run(until=lambda report: False, during=kill)
    report = shop.run()

    assert (report.succeeded, report.failed) == (1, 0)
    assert (shop.job("a").attempt, shop.job("a").result) == (2, b"2")
    assert verify(shop.deployment)["violations"] == []
