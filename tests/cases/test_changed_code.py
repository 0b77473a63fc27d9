"""Changed code is never answered with what another step, or another request, was answered when it was recorded.

Guards: `replay/session.py` answers a step by its name, occurrence and request, never by its place alone, and names the
first difference with both sides; what has no recording is blocked, or answered by the app's stub. Each kind of change
stands in detail in `tests/unit/replay/test_dry_run.py`, the status and exit code in `tests/replay`; this is the whole
table, with what every call was given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from tests.support.recorded import deployment, dry_run, record

from rewindq import App, Context
from rewindq.engine.replay.source import JobPast
from rewindq.engine.runtime.deployment import Deployment

LEDGER: list[str] = []
Steps = Callable[["Told"], Awaitable[None]]


class Order(BaseModel):
    """An order."""

    order_id: str
    amount: int = 5


class Told:
    """The handler's calls, and what each of them was given."""

    def __init__(self, ctx: Context, job: Order, given: list[tuple[str, Any, Any]]) -> None:
        self._ctx, self._given = ctx, given
        self.job = job

    async def load(self) -> None:
        """Reads the order."""
        await self._ctx.load("order", self.job.order_id)

    async def call(self, name: str, value: Any) -> None:
        """One effect; its answer says what it was asked."""
        self._given.append((name, value, await self._ctx.effect(name, ask, name, value, key=f"{name}-{value}")))


def ask(name: str, value: Any) -> str:
    """The outside world."""
    LEDGER.append(name)
    return f"{name} of {value}"


async def recorded(told: Told) -> None:
    """load → check_stock → charge → notify."""
    await told.load()
    await told.call("check_stock", told.job.order_id)
    await told.call("charge", told.job.amount)
    await told.call("notify", told.job.order_id)


async def renamed(told: Told) -> None:
    """Another name, the same request."""
    await told.load()
    await told.call("verify_stock", told.job.order_id)
    await told.call("charge", told.job.amount)
    await told.call("notify", told.job.order_id)


async def swapped(told: Told) -> None:
    """Two steps have changed places."""
    await told.load()
    await told.call("charge", told.job.amount)
    await told.call("check_stock", told.job.order_id)
    await told.call("notify", told.job.order_id)


async def added(told: Told) -> None:
    """A step that was not there."""
    await told.load()
    await told.call("check_stock", told.job.order_id)
    await told.call("fraud", told.job.order_id)
    await told.call("charge", told.job.amount)
    await told.call("notify", told.job.order_id)


async def removed(told: Told) -> None:
    """A step that is not there any more."""
    await told.load()
    await told.call("charge", told.job.amount)
    await told.call("notify", told.job.order_id)


async def other_input(told: Told) -> None:
    """The same step asks for something else."""
    await told.load()
    await told.call("check_stock", told.job.order_id)
    await told.call("charge", told.job.amount + 1)
    await told.call("notify", told.job.order_id)


async def one_more_round(told: Told) -> None:
    """A loop goes on for longer."""
    await recorded(told)
    await told.call("notify", "twice")


class Change(NamedTuple):
    """The first difference: its place among the recorded steps, what was recorded and what was tried there.

    `held`: it stops at what is not recorded, unless there is a stub.
    """

    steps: Steps
    kind: str
    index: int
    expected: Any
    got: Any
    held: bool


def step(name: str, *request: Any) -> Any:
    """How a divergence names a step, with the request that was tried."""
    return {"step": name, **({"args": list(request)} if request else {})}


CHANGES = [
    Change(renamed, "unrecorded_step", 1, step("check_stock"), step("verify_stock", "verify_stock", "o1"), True),
    Change(swapped, "order_differs", 2, {"after": "check_stock"}, {"after": "load order:o1"}, False),
    Change(added, "unrecorded_step", 2, step("charge"), step("fraud", "fraud", "o1"), True),
    Change(removed, "missing_step", 1, step("check_stock"), None, False),
    Change(other_input, "request_differs", 2, {"args": ["charge", 5]}, {"args": ["charge", 6]}, True),
    Change(one_more_round, "unrecorded_step", 4, None, step("notify#2", "notify", "twice"), True),
]


def told(side: Any) -> Any:
    """A side of a divergence without its digest, which is of the request."""
    if side is None or "after" in side:
        return side
    assert side["digest"].startswith("sha256:")
    request = {"args": side["request"]["args"]} if "request" in side else {}
    return ({"step": side["step"]} if "step" in side else {}) | request


def app_of(steps: Steps, given: list[tuple[str, Any, Any]], *, stubs: bool = False) -> App:
    app = App("test")

    @app.job("order", resource="order:{order_id}")
    async def order(ctx: Context, job: Order) -> str:
        await steps(Told(ctx, job, given))
        return "done"

    if stubs:
        for name in ("fraud", "verify_stock", "charge", "notify"):
            app.stub(name)(lambda name, value: f"stub of {name} for {value}")
    return app


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


@pytest.fixture
def job(place: Deployment) -> Iterator[JobPast]:
    with record(place, app_of(recorded, []), "order", {"order_id": "o1"}, "order:o1") as found:
        assert LEDGER == ["check_stock", "charge", "notify"]
        LEDGER.clear()
        yield found


def test_unchanged_code_takes_the_same_path(place: Deployment, job: JobPast) -> None:
    given: list[tuple[str, Any, Any]] = []
    replay = dry_run(place, job, app_of(recorded, given))
    assert (replay.outcome, replay.divergences, LEDGER) == ("succeeded", [], [])
    assert all(answer == f"{name} of {value}" for name, value, answer in given) and len(given) == 3


@pytest.mark.parametrize("stubs", [False, True], ids=["without stubs", "with stubs"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.steps.__name__)
def test_changed_code_is_told_where_and_gets_no_other_answer(
    place: Deployment, job: JobPast, change: Change, stubs: bool
) -> None:
    given: list[tuple[str, Any, Any]] = []
    replay = dry_run(place, job, app_of(change.steps, given, stubs=stubs))
    first = replay.divergences[0]
    assert (first["kind"], first["index"]) == (change.kind, change.index), replay.divergences
    assert (told(first["expected"]), told(first["got"])) == (change.expected, change.got)
    if first["expected"] is not None and first["got"] is not None and "digest" in first["got"]:
        assert first["expected"]["digest"] != first["got"]["digest"]
    held = change.held and not stubs
    assert (replay.outcome, "was blocked" in (replay.reason or "")) == ("failed" if held else "succeeded", held)
    assert LEDGER == []
    for name, value, answer in given:
        assert answer in (f"{name} of {value}", f"stub of {name} for {value}")
