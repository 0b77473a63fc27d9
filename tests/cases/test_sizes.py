"""What is too large goes by reference or is refused by size and limit, at once, and nothing beside it is touched.

The guards: `core/sizes.py` (bounds of a step, an input, a name), asked by `encode_step` and `Context._step`
(`runtime/context.py`), `encode_changes` (`core/writes.py`), `Run.record` (`worker/run.py`) and `Intake._take`
(`worker/intake.py`); `Gate._keep` (`effects/gate.py`) for answers, `_BY_TYPE` (`runtime/failures.py`) for the rest.
Bodies that go by reference: `tests/worker/test_surface.py`, `tests/unit/runtime/test_client.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.case_shops import MakeShop, make_shop
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.sizes import INPUT_MAX, NAME_MAX, RECORD_MAX, STEP_MAX
from rewindq.engine.runtime.pending import read_from

__all__ = ["make_shop"]
SOON = Retry(max_attempts=3, base=0.01, cap=0.05)
LARGE = STEP_MAX + 1
#: More than the log takes in one record, on Kafka.
HUGE = 9 * 1024 * 1024


class Item(BaseModel):
    """A small payload."""

    how: str = ""
    size: int = 0


class Calls:
    """An app whose jobs call outside, then do something large, then call again; `made` are the calls."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.app = App("sizes")
        self._add_work()
        self.app.cache_source("large", lambda key: ("x" * int(key), "v1"))

    def call(self, what: str) -> str:
        self.made.append(what)
        return what

    def _add_work(self) -> None:
        @self.app.job(retry=SOON)
        async def work(ctx: Context, job: Item) -> None:
            await ctx.effect("call", self.call, "before", key="before")
            text = "x" * job.size
            if job.how == "note":
                ctx.note("told", text=text)
            elif job.how == "decide":
                ctx.decide("why", True, text=text)
            elif job.how == "save":
                await ctx.save("thing", "1", {"text": text}, expected=0)
            elif job.how == "save by many names":
                await ctx.save("thing", "1", {f"{n:03d}{text}": n for n in range(100)}, expected=0)
            elif job.how == "cache":
                await ctx.cache("large", str(job.size))
            elif job.how == "step name":
                ctx.note(text)
            elif job.how == "effect key":
                await ctx.effect("call", self.call, "long", key=text)
            elif job.how == "child id":
                await ctx.enqueue("work", Item(), job_id=text)
            elif job.how == "child key":
                await ctx.enqueue("work", Item(), key=text)
            await ctx.effect("call", self.call, "after", key="after")


@pytest.mark.parametrize(
    ("how", "size", "limit"),
    [
        ("note", LARGE, STEP_MAX),
        ("decide", LARGE, STEP_MAX),
        ("save", LARGE, STEP_MAX),
        ("save by many names", LARGE // 100, STEP_MAX),
        ("cache", LARGE, STEP_MAX),
        ("step name", LARGE, NAME_MAX),
        ("effect key", LARGE, NAME_MAX),
        ("child key", LARGE, NAME_MAX),
        ("child id", 201, 200),
    ],
)
def test_a_step_that_is_too_large_fails_its_job_alone(tmp_path: Path, how: str, size: int, limit: int) -> None:
    calls = Calls()
    shop = Shop(tmp_path, calls.app)
    shop.submit("work", {"how": how, "size": size}, "large")
    for number in range(3):
        shop.submit("work", {}, f"beside-{number}")
    shop.run()
    job = shop.job("large")
    assert (job.status, job.attempt, job.lost) == (s.INVESTIGATION, 1, 0)
    assert job.failure is not None
    assert job.failure.failure_class == FailureClass.VALIDATION
    assert str(limit) in job.failure.reason and len(job.failure.reason) < 4000
    assert [(shop.job(f"beside-{n}").status, shop.job(f"beside-{n}").attempt) for n in range(3)] == [
        (s.SUCCEEDED, 1)
    ] * 3
    assert calls.made.count("before") == 4 and calls.made.count("after") == 3


def test_refused_steps_leave_the_partition_with_its_owner(make_shop: MakeShop) -> None:
    """A record that the log refuses would cost everybody on the partition an attempt."""
    calls = Calls()
    shop = make_shop(calls.app)
    for how in ("note", "save"):
        shop.submit("work", {"how": how, "size": HUGE}, how)
    shop.submit("work", {}, "beside")
    shop.run()
    assert [(shop.job(j).status, shop.job(j).attempt) for j in ("note", "save", "beside")] == [
        (s.INVESTIGATION, 1),
        (s.INVESTIGATION, 1),
        (s.SUCCEEDED, 1),
    ]
    assert {record.epoch for record in shop.records()} == {1}


@pytest.mark.parametrize("how", ["note", "save"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_limit_itself_is_allowed(tmp_path: Path, how: str, over: int) -> None:
    calls = Calls()
    shop = Shop(tmp_path, calls.app)
    shop.submit("work", {"how": how, "size": STEP_MAX - len('{"text":""}') + over}, "j")
    shop.run()
    assert shop.job("j").status == (s.INVESTIGATION if over > 0 else s.SUCCEEDED)


def test_a_long_trace_is_many_records_and_ends_well(make_shop: MakeShop) -> None:
    app, count = App("long"), 90

    @app.job(retry=SOON)
    async def talk(ctx: Context, job: Item) -> str:
        await ctx.effect("call", lambda: "before", key="before")
        for number in range(count):
            ctx.note("told", number=number, text="x" * 100_000)
        return str(await ctx.effect("call", lambda: "after", key="after"))

    shop = make_shop(app)
    shop.submit("talk", {}, "j")
    shop.run()
    assert (shop.job("j").status, shop.job("j").attempt) == (s.SUCCEEDED, 1)
    assert sum(isinstance(body, e.NoteRecorded) for body in shop.bodies("j")) == count
    sizes = [len(r.value or b"") for r in read_from(shop.deployment, shop.topics.domain, 0, 0)]
    assert max(sizes) < 2 * RECORD_MAX
    assert sum(sizes) > 8 * 1024 * 1024


@pytest.mark.parametrize("idempotent", [False, True])
def test_an_answer_that_can_be_kept_nowhere_is_told_and_never_asked_for_again(tmp_path: Path, idempotent: bool) -> None:
    app = App("answers")
    made: list[int] = []

    def call() -> str:
        made.append(1)
        return "x" * 100_000

    @app.job(retry=SOON)
    async def ask(ctx: Context, job: Item) -> None:
        await ctx.effect("call", call, key="k", idempotent=idempotent)

    shop = Shop(tmp_path, app)
    shop.deployment.blobs = None
    shop.submit("ask", {}, "j")
    shop.run()
    job = shop.job("j")
    assert (job.status, job.attempt, len(made)) == (s.INVESTIGATION, 1, 1)
    doubts = [body for body in shop.bodies("j") if isinstance(body, e.EffectInDoubt)]
    assert len(doubts) == 1
    assert "was done, but its answer cannot be recorded" in doubts[0].reason
    assert "100002" in doubts[0].reason and str(shop.deployment.settings.body_limit_bytes) in doubts[0].reason


@pytest.mark.parametrize("what", ["result", "child"])
def test_what_can_be_kept_nowhere_is_refused_once_and_effects_stand(tmp_path: Path, what: str) -> None:
    app = App("results")
    made: list[int] = []

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> str:
        await ctx.effect("call", made.append, 1, key="k")
        if what == "child":
            await ctx.enqueue("work", Item(how="x" * 100_000))
        return "x" * 100_000

    shop = Shop(tmp_path, app)
    shop.deployment.blobs = None
    shop.submit("work", {}, "j")
    shop.run()
    job = shop.job("j")
    assert (job.status, job.attempt, made) == (s.INVESTIGATION, 1, [1])
    assert job.failure is not None
    assert job.failure.failure_class == FailureClass.VALIDATION
    assert str(shop.deployment.settings.body_limit_bytes) in job.failure.reason
    assert "ChildEnqueued" not in shop.names("j")


def test_a_record_that_is_too_large_is_parked_and_its_neighbours_run(make_shop: MakeShop) -> None:
    calls = Calls()
    shop = make_shop(calls.app)
    shop.submit("work", {}, "before")
    shop.submit("work", {"how": "x" * INPUT_MAX}, "large")
    shop.submit("work", {}, "after")
    shop.run()
    entry = f"{shop.topics.jobs}-p0-1"
    parked = [body for body in shop.bodies(entry) if isinstance(body, e.MovedToInvestigation)]
    assert len(parked) == 1
    assert str(INPUT_MAX) in parked[0].reason and "offset 1" in parked[0].reason
    assert (shop.job("before").status, shop.job("after").status) == (s.SUCCEEDED, s.SUCCEEDED)
    shop.run()
    assert len(shop.bodies(entry)) == 1
