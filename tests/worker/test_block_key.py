"""`on_failure="block_key"`: later jobs of a resource wait behind a failed one, whatever becomes of the worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.ids import new_id
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import worker as worker_module
from rewindq.processors.worker.queue import ReadyQueue

ONCE = Retry(max_attempts=1)


class Item(BaseModel):
    """What a job works on."""

    item: str = "x"
    n: int = 0


class Bench:
    """A shop whose jobs note their order, and fail while they are told to."""

    def __init__(self, folder: Path, retry: Retry = ONCE, **rules: Any) -> None:
        self.ran: list[int] = []
        self.broken = {1}
        app = App("t")

        @app.job(resource="item:{item}", retry=retry, **rules)
        async def work(ctx: Context, job: Item) -> None:
            self.ran.append(job.n)
            if job.n in self.broken:
                raise RuntimeError("broken")

        @app.job(resource="item:{item}")
        async def other(ctx: Context, job: Item) -> None:
            self.ran.append(job.n)

        self.shop = Shop(folder, app)

    def submit(self, n: int, item: str = "x", type_: str = "work", **fields: Any) -> None:
        self.shop.submit(type_, {"item": item, "n": n}, f"j{n}", **fields)

    def command(self, job_id: str, kind: type[e.CancelCommand] | type[e.RetryCommand]) -> None:
        self.shop.input(
            self.shop.topics.commands, job_id, kind(new_id(self.shop.deployment.clock), "because", "ann"), job_id, 0
        )

    def waits(self, job_id: str) -> str | None:
        with Past(self.shop.deployment) as past:
            return past.find(job_id).waits

    def violations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = verify(self.shop.deployment)["violations"]
        return found


def test_later_jobs_of_the_resource_wait_and_others_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, on_failure="block_key")
    for n in (1, 2, 3):
        bench.submit(n)
    bench.submit(4, type_="other")
    bench.submit(5, item="y")
    report = bench.shop.run()

    assert sorted(bench.ran) == [1, 5]
    assert report.idle
    assert report.blocked == 3
    assert [bench.shop.job(f"j{n}").status for n in (2, 3, 4)] == [s.WAITING] * 3
    assert bench.waits("j2") == bench.waits("j4") == "waits behind j1 in investigation"
    assert bench.waits("j1") is None


def test_they_wait_on_under_the_next_owner_until_a_retry_succeeds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, on_failure="block_key")
    for n in (1, 2, 3):
        bench.submit(n)
    bench.shop.run()
    assert bench.shop.run().blocked == 2
    bench.command("j1", e.RetryCommand)
    assert bench.shop.run().blocked == 2
    assert bench.ran == [1, 1]
    bench.broken.clear()
    bench.command("j1", e.RetryCommand)
    bench.submit(6)
    report = bench.shop.run()

    assert bench.ran == [1, 1, 1, 2, 3, 6]
    assert report.blocked == 0
    assert bench.waits("j6") is None
    assert bench.violations() == []


def test_a_cancelled_job_blocks_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, on_failure="block_key")
    for n in (1, 2, 3):
        bench.submit(n)
    bench.shop.run()
    bench.command("j2", e.CancelCommand)
    assert bench.shop.run().blocked == 1
    bench.command("j1", e.CancelCommand)
    bench.shop.run()

    assert bench.ran == [1, 3]
    assert bench.violations() == []


def test_nothing_overtakes_a_job_that_waits_for_its_next_attempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, retry=Retry(max_attempts=2, base=0.05, jitter=0), on_failure="block_key")
    bench.submit(1)
    bench.submit(2)
    bench.shop.run()

    assert bench.ran == [1, 1]
    assert bench.shop.names("j1").count("KeyBlocked") == 1


def test_a_poison_job_blocks_its_key_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, on_failure="block_key", max_lost=1)
    bench.broken.clear()
    bench.submit(1)
    bench.submit(2)
    shop = bench.shop

    async def die(worker: Any) -> None:
        while "j1" not in worker._attempts.running or worker._attempts.running["j1"].task is None:
            await asyncio.sleep(0.01)
        worker.failure = LookupError("gone")
        worker.wake()

    shop.app.types["work"] = shop.app.types["work"]._replace(function=_hang)
    with pytest.raises(LookupError):
        shop.run(until=lambda report: False, during=die)
    report = shop.run()

    assert shop.job("j1").status == s.INVESTIGATION
    assert report.blocked == 1


async def _hang(ctx: Context, job: Item) -> None:
    await asyncio.Event().wait()


def test_continue_is_the_default(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.submit(1)
    bench.submit(2)
    bench.shop.run()

    assert bench.ran == [1, 2]
    assert "KeyBlocked" not in bench.shop.names("j1")


def test_commands_come_in_however_many_jobs_are_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "READY_MAX", 2)
    bench = Bench(tmp_path, on_failure="block_key")
    for n in range(1, 9):
        bench.submit(n)
    bench.shop.run()
    bench.command("j1", e.CancelCommand)
    bench.shop.run()

    assert bench.ran == list(range(1, 9))


def test_verify_sees_a_job_that_overtook_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadyQueue, "block", lambda queue, resource, first: None)
    bench = Bench(tmp_path, on_failure="block_key")
    bench.submit(1)
    bench.submit(2)
    bench.shop.run()

    (violation,) = bench.violations()
    assert violation["kind"] == "overtook"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [({"on_failure": "block_key"}, "needs a resource="), ({"on_failure": "stop"}, "must be continue or block_key")],
)
def test_a_rule_that_cannot_hold_is_refused(rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(AppError, match=reason):

        @App("t").job(**rules)
        async def work(ctx: Context, job: Item) -> None: ...
