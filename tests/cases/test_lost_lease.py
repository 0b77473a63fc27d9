"""A worker that may have lost a lease does nothing more under it, however late it comes to know.

Pinned down: `LiveSession.start` looks at the leases before `EffectStarted` and when that is durable, `enqueue` and
`save` before they decide (`processors/worker/session.py`); `HeldLease.__aenter__` (`engine/runtime/leasing.py`) enters
no block that has lost one of its leases meanwhile. How a lease is lost is in `tests/worker/test_other_partitions.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.leasing import LeaseHandle
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.leases import Leases


class Order(BaseModel):
    """A payload."""


class Bench:
    """A shop whose worker loses its leases once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = App("t")
        self.shop = Shop(folder, self.app)
        self.lost = False
        self._held: list[LeaseHandle] = []
        acquire: Any = Leases.acquire

        async def noted(leases: Leases, run: object, step: str, resource: str, *rest: float) -> LeaseHandle:
            handle: LeaseHandle = await acquire(leases, run, step, resource, *rest)
            if self.early and resource == "till:2":
                self.lose()
            self._held.append(handle)
            return handle

        monkeypatch.setattr(Leases, "acquire", noted)
        #: Whether that is while another one is waited for.
        self.early = False

    def lose(self) -> None:
        """The first time, what is held is lost, as when no renewal was made in time."""
        if not self.lost:
            self.lost = True
            for handle in self._held:
                handle.lost = True

    def started(self) -> list[int]:
        """In which attempts calls began."""
        records = self.shop.records("a")
        return [r.attempt for r in records for event in r.events if isinstance(event.body, e.EffectStarted)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_no_call_begins_when_the_lease_was_lost_while_the_last_one_was_looked_up(bench: Bench) -> None:
    calls: list[int] = []

    async def charge() -> str:
        calls.append(len(calls))
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return "receipt"

    async def look() -> None:
        bench.lose()

    @bench.app.job(retry=Retry(max_attempts=2, base=0.001))
    async def pay(ctx: Context, job: Order) -> None:
        async with ctx.lease("till:1", ttl=30):
            await ctx.effect("charge", charge, key="c", on_doubt=look)

    bench.shop.submit("pay", {}, "a")
    bench.shop.run()
    assert bench.shop.job("a").status == s.SUCCEEDED
    assert len(calls) == 2 and bench.started() == [1, 3], "the second attempt had lost its lease"
    assert verify(bench.shop.deployment)["violations"] == []


def test_a_call_whose_lease_was_lost_while_its_record_was_made_durable_is_surely_not_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    @bench.app.job(retry=Retry(base=0.001))
    async def pay(ctx: Context, job: Order) -> None:
        async with ctx.lease("till:1", ttl=30):
            await ctx.effect("charge", calls.append, "called", key="c")

    collect = type(bench.shop.deployment.codec).encode

    def slow(codec: object, record: e.EventRecord) -> bytes:
        if any(isinstance(event.body, e.EffectStarted) for event in record.events):
            bench.lose()
        return collect(codec, record)  # type: ignore[arg-type]

    monkeypatch.setattr(type(bench.shop.deployment.codec), "encode", slow)
    bench.shop.submit("pay", {}, "a")
    bench.shop.run()
    assert bench.shop.job("a").status == s.SUCCEEDED
    assert calls == ["called"] and bench.started() == [1, 2]
    (failed,) = [body for body in bench.shop.bodies("a") if isinstance(body, e.EffectFailed)]
    assert "lease was lost" in failed.reason
    assert verify(bench.shop.deployment)["violations"] == []


@pytest.mark.parametrize("what", ["enqueue", "second lease"])
def test_nothing_is_enqueued_and_no_block_entered_without_all_leases(bench: Bench, what: str) -> None:
    entered: list[int] = []

    @bench.app.job()
    async def child(ctx: Context, job: Order) -> None: ...

    @bench.app.job(retry=Retry(base=0.001))
    async def pay(ctx: Context, job: Order) -> None:
        async with ctx.lease("till:1", "till:2", ttl=30):
            entered.append(ctx.attempt)
            if what == "enqueue":
                bench.lose()
                await ctx.enqueue(child, Order())

    bench.early = what == "second lease"
    bench.shop.submit("pay", {}, "a")
    bench.shop.run()
    assert bench.shop.job("a").status == s.SUCCEEDED
    assert entered == ([1, 2] if what == "enqueue" else [2])
    enqueued = [r.attempt for r in bench.shop.records("a") for ev in r.events if isinstance(ev.body, e.ChildEnqueued)]
    assert enqueued == ([2] if what == "enqueue" else [])
