"""Probes that were made by hand: late ones, stale ones, and ones that nobody can read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.circles import Nest, at_home
from tests.support.shop import Shop

from rewindq import App, Context, Deadlock
from rewindq.engine.core import events as e
from rewindq.engine.core.deadlock import HOLDER, HOME, VICTIM, Link, encode_path
from rewindq.processors.worker.deadlocks import Deadlocks

X, Y = at_home(1, 2), at_home(1, 2, after=500)
#: The request of job a, which holds X and waits for Y, as a probe has it; and one of a job A that is not there.
WAITS = Link("a/1/3", "a", 1, 0, X, Y)
GONE = Link("A/1/1", "A", 1, 1, Y, X)


@pytest.mark.parametrize(
    ("stage", "path", "place", "epoch", "ends"),
    [
        pytest.param(VICTIM, (WAITS, GONE), 0, 7, True, id="it stands"),
        pytest.param(VICTIM, (replace(WAITS, request_id="a/1/9"), GONE), 0, 7, False, id="it waits no longer"),
        pytest.param(VICTIM, (replace(WAITS, holds="stock:o"), GONE), 0, 7, False, id="it holds something else"),
        pytest.param(VICTIM, (WAITS, GONE), 0, 6, False, id="from a worker that was replaced"),
        pytest.param(HOLDER, (replace(WAITS, holds=None), GONE), 0, 7, True, id="its holder waits for the first"),
        pytest.param(HOLDER, (WAITS, replace(GONE, waits="stock:o")), 0, 7, False, id="its holder holds it no longer"),
        pytest.param(HOME, (replace(WAITS, holds=None), GONE), 1, 7, False, id="nobody of its home waits"),
        pytest.param(
            HOME, (replace(WAITS, holds=None), replace(GONE, partition=0)), 1, 7, False, id="nobody waits there"
        ),
    ],
)
def test_a_probe_is_taken_on_only_while_its_edge_stands(
    tmp_path: Path, stage: str, path: tuple[Link, ...], place: int, epoch: int, ends: bool
) -> None:
    """One that comes late, or from who was replaced, harms nobody. Here all are late: no job waits for X."""
    app, told = App("late"), []

    @app.job()
    async def wait(ctx: Context, job: Nest) -> None:
        async with ctx.lease(X, ttl=20):
            blocker = asyncio.create_task(hold(ctx))
            await asyncio.sleep(0.05)
            try:
                async with ctx.lease(Y, ttl=20, wait=2):
                    pass
            except Deadlock as error:
                told.append(str(error))
            await blocker

    async def hold(ctx: Context) -> None:
        async with ctx.lease(Y, ttl=20):
            await asyncio.sleep(0.8)

    shop = Shop(tmp_path, app, partitions=2)
    shop.submit("wait", {"first": "", "second": ""}, "a", key=at_home(0, 2, "key"))

    async def forge(worker: Any) -> None:
        while not any(isinstance(body, e.LeaseRequested) for body in shop.bodies()):
            await asyncio.sleep(0.02)
        if epoch == 6:
            worker._owners[0].states.set_peer(1, 7)
        body = e.LeaseProbe(stage, "a/1/3#1", 1 - place, encode_path(path), "a" if stage == HOLDER else None)
        event = e.Event(body, resource=path[-1].waits)
        record = e.EventRecord(e.UNNUMBERED, 5, 1_790_000_000_000_000, epoch, "w", "a", 1, (event,))
        shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=place)

    report = shop.run(during=forge, deadlock_after=30)

    assert report.succeeded == 1
    assert bool(told) == ends


@pytest.mark.parametrize(
    ("stage", "path", "why"),
    [(HOME, b"[]", "0 links"), (HOME, b"\xff", "malformed"), ("elsewhere", None, "a probe at stage 'elsewhere'")],
)
def test_a_probe_that_cannot_be_read_is_put_under_investigation(
    tmp_path: Path, stage: str, path: bytes | None, why: str
) -> None:
    shop = Shop(tmp_path, App("t"), partitions=2)
    good = encode_path((Link("a/1/1", "a", 1, 0, None, "x"),))
    shop.input(shop.topics.commands, "a", e.LeaseProbe(stage, "a/1/1#1", 0, good if path is None else path), "x", 1)

    shop.run()

    (parked,) = [body for body in shop.bodies() if isinstance(body, e.MovedToInvestigation)]
    assert why in parked.reason


@pytest.mark.parametrize("after", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match="deadlock_after must be above 0 seconds"):
        Deadlocks(None, None, lambda: None, after)  # type: ignore[arg-type]
