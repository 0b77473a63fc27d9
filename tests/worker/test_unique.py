"""Unique jobs: one of a key at a time; the others are recorded duplicates; whatever ends the job frees the key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.ids import new_id
from rewindq.engine.runtime.submitting import SubmissionRefused
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.worker import Worker


class Day(BaseModel):
    """What a report is about."""

    day: int = 1
    note: str = ""


class Reports:
    """An app with a unique type; its jobs fail or hang while they are told to."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.hanging: set[str] = set()
        self.app = App("t")
        rules = {"unique": "report:{day}", "retry": Retry(max_attempts=1), **rules}
        self.app.job("report", **rules)(self.report)
        self.app.job("other", unique="report:{day}")(self.report)
        self.shop = Shop(folder, self.app, partitions=4)
        self.clock = self.shop.deployment.clock = Movable()

    async def report(self, ctx: Context, job: Day) -> None:
        self.ran.append(ctx.job_id)
        if ctx.job_id in self.hanging:
            await asyncio.Event().wait()
        if ctx.job_id in self.broken:
            raise RuntimeError("broken")

    def submit(self, job_id: str, day: int = 1, type_: str = "report", **fields: Any) -> None:
        self.shop.submit(type_, {"day": day, "note": job_id}, job_id, **fields)

    def command(self, job_id: str, kind: type[e.CancelCommand] | type[e.RetryCommand]) -> None:
        home = next(n for n, tail in enumerate(self.shop.fold()) if tail.states.job(job_id) is not None)
        self.shop.input(
            self.shop.topics.commands, job_id, kind(new_id(self.shop.deployment.clock), "because", "ann"), job_id, home
        )

    def first_of(self, job_id: str) -> str | None:
        return next((b.first for b in self.shop.bodies(job_id) if isinstance(b, e.UniqueDuplicated)), None)

    def verified(self) -> None:
        assert verify(self.shop.deployment)["violations"] == []

    def marks(self) -> int:
        """Unique keys that are held, in all partitions."""
        prefix = s.UNIQUE.encode()
        count = 0
        for tail in self.shop.fold():
            count += sum(1 for _ in tail._store.scan(Family.MARKS, prefix))
        return count


def test_while_one_waits_or_runs_others_are_its_duplicates(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    due = reports.clock.now_us() + 60_000_000
    reports.submit("a", due=due)
    reports.shop.run(until=lambda report: "UniqueTaken" in reports.shop.names("a"))
    for n in range(5):
        reports.submit(f"again{n}")
    reports.submit("next day", day=2)
    reports.submit("of another type", type_="other")

    async def later(worker: Worker) -> None:
        while worker.report.succeeded < 2:
            await asyncio.sleep(0.01)
        reports.clock.added = 61
        worker.wake()

    report = reports.shop.run(during=later)
    assert sorted(reports.ran) == ["a", "next day", "of another type"]
    assert {reports.first_of(f"again{n}") for n in range(5)} == {"a"}
    job = reports.shop.job("again3")
    assert (job.status, job.cancel_reason) == (s.CANCELLED, "duplicate of a, which holds the unique key 'report:1'")
    assert report.succeeded == 3
    assert reports.marks() == 0
    reports.verified()


@pytest.mark.parametrize("end", ["success", "investigation", "cancel", "poison"])
def test_the_key_is_free_however_the_job_ends(tmp_path: Path, end: str) -> None:
    reports = Reports(tmp_path, max_lost=1)
    if end == "investigation":
        reports.broken.add("a")
    if end == "cancel":
        reports.submit("a", due=reports.clock.now_us() + 60_000_000)
        reports.shop.run(until=lambda report: "UniqueTaken" in reports.shop.names("a"))
        assert reports.marks() == 1
        reports.command("a", e.CancelCommand)
    else:
        reports.submit("a")
    if end == "poison":
        reports.hanging.add("a")
        with pytest.raises(LookupError):
            reports.shop.run(until=lambda report: False, during=die)
    reports.shop.run()
    reports.submit("b")
    reports.shop.run()

    assert reports.shop.job("b").status == s.SUCCEEDED
    assert reports.marks() == 0
    reports.verified()


async def die(worker: Worker) -> None:
    while "a" not in worker._attempts.running or worker._attempts.running["a"].task is None:
        await asyncio.sleep(0.01)
    worker.failure = LookupError("gone")
    worker.wake()


def test_a_killed_worker_leaves_the_key_to_the_job_that_runs_again(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    reports.submit("a")
    reports.hanging.add("a")
    with pytest.raises(LookupError):
        reports.shop.run(until=lambda report: False, during=die)
    reports.hanging.clear()
    for n in range(5):
        reports.submit(f"again{n}")
    reports.shop.run()

    # Others may have come in when it had ended; they ran one after another.
    late = {f"again{n}" for n in range(5) if reports.first_of(f"again{n}") is None}
    assert reports.ran[:2] == ["a", "a"]
    assert sorted(reports.ran[2:]) == sorted(late)
    assert reports.shop.job("a").status == s.SUCCEEDED
    assert reports.marks() == 0
    reports.verified()


def test_a_retry_that_meets_a_newer_job_is_refused_by_name_and_else_takes_the_key_again(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    reports.broken.add("a")
    reports.submit("a")
    reports.shop.run()
    reports.submit("b", due=reports.clock.now_us() + 60_000_000)
    reports.shop.run(until=lambda report: "UniqueTaken" in reports.shop.names("b"))
    reports.command("a", e.RetryCommand)
    reports.shop.run(until=lambda report: "CommandRefused" in reports.shop.names("a"))
    (refused,) = [body for body in reports.shop.bodies("a") if isinstance(body, e.CommandRefused)]
    assert "b holds the unique key 'report:1'" in refused.reason
    reports.command("b", e.CancelCommand)
    reports.shop.run()
    reports.broken.clear()
    reports.command("a", e.RetryCommand)
    reports.shop.run()

    assert reports.shop.job("a").status == s.SUCCEEDED
    assert reports.shop.names("a").count("UniqueTaken") == 2
    reports.verified()


def test_a_window_bounds_how_long_a_key_is_held(tmp_path: Path) -> None:
    reports = Reports(tmp_path, unique_for=100)
    due = reports.clock.now_us() + 1_000_000_000
    reports.submit("a", due=due)
    reports.shop.run(until=lambda report: "UniqueTaken" in reports.shop.names("a"))
    reports.clock.added = 99
    reports.submit("b")
    reports.shop.run(until=lambda report: reports.first_of("b") == "a")
    reports.clock.added = 101
    reports.submit("c", due=due)
    reports.shop.run(until=lambda report: "UniqueTaken" in reports.shop.names("c"))
    reports.command("a", e.CancelCommand)
    reports.submit("d")
    reports.shop.run(until=lambda report: reports.first_of("d") == "c")  # the first job's end did not free it

    assert reports.marks() == 1
    reports.verified()


def test_the_unique_key_is_the_partition_key(tmp_path: Path) -> None:
    reports = Reports(tmp_path)
    with Client(deployment=reports.shop.deployment, app=reports.app) as client:
        client.submit("report", {"day": 1}, job_id="own", key="report:1")
        with pytest.raises(SubmissionRefused, match="leave the key out"):
            client.submit("report", {"day": 1}, key="mine")
    reports.submit("foreign", day=3, key="mine")
    reports.shop.run()
    assert reports.ran == ["own"]
    failure = reports.shop.job("foreign").failure
    assert failure is not None
    assert "'mine' is not the one" in failure.reason
    assert reports.marks() == 0


def test_verify_sees_two_jobs_with_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s.UniqueMark, "holds", lambda mark, now: False)
    reports = Reports(tmp_path)
    reports.submit("a", due=reports.clock.now_us() + 60_000_000, key="report:1")
    reports.submit("b", key="report:1")
    reports.shop.run(until=lambda report: report.succeeded == 1)
    assert [v["kind"] for v in verify(reports.shop.deployment)["violations"]] == ["second_unique"]


def test_a_rate_is_home_enough_for_unique_keys(tmp_path: Path) -> None:
    reports = Reports(tmp_path, rate="10/s")
    reports.submit("a", due=reports.clock.now_us() + 60_000_000, key="rate:report")
    reports.submit("b", key="rate:report")
    reports.submit("c", day=2)
    reports.shop.run(until=lambda report: report.succeeded == 1)
    assert (reports.first_of("b"), reports.ran) == ("a", ["c"])


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"key": "k:{day}"}, "unique= and key= .* different partitions"),
        ({"resource": "r:{day}"}, "unique= and resource= .* different partitions"),
        ({"unique_for": 0}, "unique_for of 'report' must be seconds above 0"),
        ({"unique": None, "unique_for": 5}, "beside unique="),
        ({"unique": "r:{missing}"}, "not a plain field"),
    ],
)
def test_rules_that_cannot_hold_are_refused(tmp_path: Path, rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(AppError, match=reason):
        Reports(tmp_path, **rules)
