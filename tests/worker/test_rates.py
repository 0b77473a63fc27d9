"""A job type's rate: never passed over all workers, whoever owns its home; what waits is shown and blocks nobody."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop
from tests.unit.core.test_rate import most_in_a_period

from rewindq import App, Context, Retry
from rewindq.engine.core import state as s
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.app import AppError, LoadedApp
from rewindq.engine.runtime.past import Past
from rewindq.processors.worker import worker as worker_module
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.worker import Worker


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Calls:
    """An app with a rated type `call`, that notes when it ran, and a plain one."""

    def __init__(self, folder: Path, rate: str = "40/s", **rules: Any) -> None:
        self.times: list[float] = []
        self.app = App("t")
        self.app.job("call", rate=rate, **rules)(self.call)
        self.app.job("plain")(self.plain)
        self.shop = Shop(folder, self.app, partitions=4)

    async def call(self, ctx: Context, job: Item) -> None:
        self.times.append(time.monotonic())

    async def plain(self, ctx: Context, job: Item) -> None: ...

    def waits(self, job_id: str) -> str | None:
        with Past(self.shop.deployment) as past:
            return past.find(job_id).waits


def test_it_is_never_passed_by_several_workers_nor_by_a_change_of_owner(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    for n in range(60):
        calls.shop.submit("call", {"n": n}, f"j{n}")
    loaded = LoadedApp(calls.app, "t:app", "c0de")
    workers = [Worker(calls.shop.deployment, loaded, WorkerOptions(name=f"w{n}")) for n in range(3)]

    async def change() -> None:
        first = asyncio.create_task(workers[0].run())
        while len(calls.times) < 20:
            await asyncio.sleep(0.01)
        others = [asyncio.create_task(worker.run(lambda report: len(calls.times) == 60)) for worker in workers[1:]]
        workers[0].stop()
        await first
        await asyncio.gather(*others)

    asyncio.run(asyncio.wait_for(change(), 30))
    assert most_in_a_period(calls.times, 1.0) <= 40
    assert calls.times[-1] - calls.times[0] > 1


def test_each_attempt_counts(tmp_path: Path) -> None:
    calls = Calls(tmp_path, retry=Retry(max_attempts=12, base=0, jitter=0))

    async def fail(ctx: Context, job: Item) -> None:
        calls.times.append(time.monotonic())
        raise ConnectionError

    calls.app.types["call"] = calls.app.types["call"]._replace(function=fail)
    calls.shop.submit("call", {}, "a")
    calls.shop.run()
    assert len(calls.times) == 12
    # A burst of three, then 38 a second.
    assert calls.times[-1] - calls.times[0] > 8 / 38


def test_what_waits_is_shown_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "READY_MAX", 2)
    calls = Calls(tmp_path, rate="1/h")
    clock = calls.shop.deployment.clock = Movable()
    home = partition_for(b"rate:call", 4)
    for n in range(6):
        calls.shop.submit("call", {"n": n}, f"call{n}")
        calls.shop.submit("plain", {"n": n}, f"plain{n}", key="rate:call")

    async def look(worker: Worker) -> None:
        while worker.report.succeeded < 6:
            await asyncio.sleep(0.01)
        assert calls.times == []
        assert not worker.report.idle
        while "TypeNoted" not in [type(body).__name__ for body in calls.shop.bodies()]:
            await asyncio.sleep(0.01)
        calls.shop.submit("plain", {}, "late", key="rate:call")
        while worker.report.succeeded < 7:
            await asyncio.sleep(0.01)
        assert calls.waits("call5") == "waits for its turn: jobs of its type start at 1/h at most"
        clock.added = 3600
        worker.wake()

    calls.shop.run(until=lambda report: report.succeeded == 8, during=look)
    assert len(calls.times) == 1
    assert calls.shop.fold()[home].states.job("plain3") is not None
    assert [calls.shop.job(f"plain{n}").status for n in range(6)] == [s.SUCCEEDED] * 6


def test_a_new_owner_begins_with_no_token(tmp_path: Path) -> None:
    calls = Calls(tmp_path, rate="2/s")
    calls.shop.submit("call", {}, "a")
    began = time.monotonic()
    calls.shop.run()
    assert calls.times[0] - began >= 0.5
    calls.shop.submit("call", {}, "b")
    began = time.monotonic()
    calls.shop.run()
    assert calls.times[1] - began >= 0.5


def test_a_job_of_a_rated_type_is_at_its_home_only(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    for n in range(8):
        calls.shop.submit("call", {"n": n}, f"own{n}")
        calls.shop.submit("call", {"n": n}, f"foreign{n}", key=f"k{n}")
    report = calls.shop.run()
    assert (report.succeeded, len(calls.times)) == (8, 8)
    failure = calls.shop.job("foreign0").failure
    assert failure is not None
    assert "at home under 'rate:call'" in failure.reason


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"rate": "fast"}, "'call': rate 'fast' must be"),
        ({"rate": "1/s", "resource": "n:{n}"}, "rate= and resource= .* different partitions"),
        ({"rate": "1/s", "concurrency_key": "n:{n}"}, "rate= and concurrency_key= .* different partitions"),
        ({"rate": "1/s", "key": "n:{n}"}, "rate= and key= .* leave key= out"),
    ],
)
def test_rules_that_cannot_hold_are_refused(tmp_path: Path, rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(AppError, match=reason):
        Calls(tmp_path, **rules)
