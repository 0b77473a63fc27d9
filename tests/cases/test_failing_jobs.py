"""A failing job is tried as often as its class says, at bounded distances, and holds up nobody meanwhile.

Pinned down: the power of a backoff is cut before it overflows, and budgets are counted by class
(`engine/core/retry.py`, whose numbers are in `tests/unit/core/test_retry.py`); what cannot become a job is parked in
the turn that passes its offset (`processors/worker/intake.py: take`, `processors/worker/committer.py: _commit`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.logs import read_all
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.log import Turn
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker import committer, owner
from rewindq.processors.worker.worker import Worker

#: More than there are powers of two among the floats.
MANY = 1_100
#: Attempts that a class has by default.
BUDGETS = {"transient": 5, "concurrency": 20, "validation": 1, "dependency": 30, "unknown": 5}


class Item(BaseModel):
    """What a job works on."""

    n: int = 0
    kind: str = ""


class Gone(Exception):
    """Stands for a process that is gone without an orderly end."""


class BrokenRule(Exception):
    """What no other attempt would mend."""


def _fast(shop: Shop, ended: Callable[[], bool]) -> Callable[[Worker], object]:
    """Lets hours pass while a worker runs."""
    clock = shop.deployment.clock = Movable()

    async def fly(worker: Worker) -> None:
        while not ended():
            clock.added += 300
            worker.wake()
            await asyncio.sleep(0.001)

    return fly


def test_more_attempts_than_any_power_has_room_for(tmp_path: Path) -> None:
    app = App("t")
    tries: list[int] = []

    @app.job(retry=Retry(max_attempts=MANY, base=1, factor=2, cap=60, jitter=0.5))
    async def work(ctx: Context, job: Item) -> None:
        tries.append(ctx.attempt)
        raise ConnectionError("down")

    shop = Shop(tmp_path, app, log=MemoryLog(MemoryState()))
    shop.submit("work", {}, "a")
    shop.run(during=_fast(shop, lambda: len(tries) == MANY))

    assert tries == list(range(1, MANY + 1))
    delays = [body.delay for body in shop.bodies("a") if isinstance(body, e.RetryScheduled)]
    assert len(delays) == MANY - 1 and all(1000 <= delay <= 90_000 for delay in delays)
    assert min(delays[10:]) >= 60_000
    failure = shop.job("a").failure
    assert failure is not None and failure.reason.endswith(f"({MANY} of {MANY} attempts failed)")


def test_each_class_has_its_own_patience_and_good_jobs_wait_for_none(tmp_path: Path) -> None:
    app = App("t")
    tries: Counter[str] = Counter()
    good: list[int] = []
    errors: dict[str, type[Exception]] = {kind: type(kind, (Exception,), {}) for kind in BUDGETS}

    @app.job(resource="item:{kind}")
    async def work(ctx: Context, job: Item) -> None:
        tries[job.kind] += 1
        raise errors[job.kind]

    @app.job(resource="item:{n}")
    async def fine(ctx: Context, job: Item) -> None:
        good.append(sum(tries.values()))

    for kind, error in errors.items():
        if kind != "unknown":
            app.classify(error, FailureClass(kind))
    shop = Shop(tmp_path, app, log=MemoryLog(MemoryState()))
    for kind in BUDGETS:
        shop.submit("work", {"kind": kind}, kind)
    for n in range(20):
        shop.submit("fine", {"n": n}, f"f{n}")
    shop.run(during=_fast(shop, lambda: tries == BUDGETS))

    assert tries == BUDGETS
    assert all(shop.job(kind).status == s.INVESTIGATION for kind in BUDGETS)
    assert len(good) == 20 and max(good) < 2 * len(BUDGETS), "they ran among the first attempts"


def test_a_dependency_that_is_down_for_a_while_burns_no_failure(tmp_path: Path) -> None:
    app = App("t")
    app.classify(LookupError, FailureClass.DEPENDENCY)
    since: list[float] = []

    @app.job(retry=Retry(max_attempts=2, base=0.001))
    async def work(ctx: Context, job: Item) -> str:
        since.append(shop.deployment.clock.monotonic())
        if ctx.attempt == 1:
            raise ConnectionError("once")
        if since[-1] - since[0] < 30:
            raise LookupError("down")
        return "up again"

    shop = Shop(tmp_path, app, log=MemoryLog(MemoryState()))
    clock = shop.deployment.clock = Movable()

    async def slowly(worker: Worker) -> None:
        while worker.report.succeeded < 1:
            clock.added += 0.25
            worker.wake()
            await asyncio.sleep(0.005)

    shop.submit("work", {}, "a")
    shop.run(during=slowly)
    job = shop.job("a")
    assert (job.status, job.failures["transient"]) == (s.SUCCEEDED, 1)
    assert 3 <= job.failures["dependency"] <= 8, "further and further apart"


@pytest.mark.parametrize("point", ["before the append", "behind the append"])
def test_a_bad_record_is_passed_when_its_entry_is_durable(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    app = App("t")
    app.classify(BrokenRule, FailureClass.VALIDATION)

    @app.job(resource="item:{n}")
    async def work(ctx: Context, job: Item) -> None:
        if job.kind:
            raise BrokenRule("a rule of ours")

    log = open_log(settings.log)
    shop = Shop(tmp_path, app, log=log, partitions=1, namespace=settings.namespace)
    shop.append(shop.topics.jobs, b"no record at all")
    shop.submit("work", {"n": "not a number"}, "bad", key="item:0")
    shop.submit("work", {"kind": "x", "n": 99}, "wrong", key="item:99")
    for n in range(5):
        shop.submit("work", {"n": n}, f"f{n}", key=f"item:{n}")

    commit_now = committer.Committer.commit_now

    def die(*_: object) -> None:
        raise Gone

    def die_with_appends(one: committer.Committer, turn: Turn) -> list[int]:
        if turn.appends and turn.offsets:  # not a fence
            raise Gone
        return commit_now(one, turn)

    with monkeypatch.context() as dying, pytest.raises(Gone):
        if point == "before the append":
            dying.setattr(committer.Committer, "commit_now", die_with_appends)
        else:
            dying.setattr(owner.ClosedTurn, "store", die)
        shop.run(lambda report: False)
    assert any(_parks(event) for record in shop.records() for event in record.events) is point.startswith("behind")
    report = shop.run()

    assert report.succeeded == 5
    parked = [record.job_id for record in shop.records() for event in record.events if _parks(event)]
    assert len(parked) == len(set(parked)) == 3 and {"bad", "wrong"} < set(parked)
    posted = [shop.deployment.codec.decode(r.value).job_id for r in read_all(log, shop.topics.investigation)]
    assert sorted(posted, key=str) == sorted(parked, key=str)
    assert [shop.job(job_id).attempt for job_id in ("bad", "wrong")] == [0, 1 if point.startswith("before") else 2]
    reasons = [shop.job(job_id).failure for job_id in ("bad", "wrong")]
    assert ["n" in reasons[0].reason, "a rule of ours" in reasons[1].reason] == [True, True]  # type: ignore[union-attr]
    log.close()


def _parks(event: e.Event) -> bool:
    return isinstance(event.body, e.MovedToInvestigation)
