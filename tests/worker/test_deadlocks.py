"""Jobs that wait for each other are told apart: one of them gives way at once, says why, and all succeed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.circles import WAIT, Circle, Nest, at_home, cycle_of, detections, probes, submit_circle
from tests.support.recorded import dry_run
from tests.support.shop import Shop

from rewindq import App, Context, Deadlock
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.deadlock import decode_path
from rewindq.engine.replay.replays import leases, trace
from rewindq.engine.replay.source import open_job
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.trace import trace_shown
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker.deadlocks import Deadlocks
from rewindq.tools.cli.trace import _detail

SOON = 0.05


def all_ended_well(shop: Shop, ids: list[str], victim: str) -> e.DeadlockDetected:
    """All succeeded long before any wait was over, one of them in a second attempt. What was detected."""
    ((chosen, body),) = detections(shop)
    assert chosen == victim
    for job_id in ids:
        job = shop.job(job_id)
        assert (job.status, job.attempt) == (s.SUCCEEDED, 2 if job_id == victim else 1)
    took = max(record.timestamp for record in shop.records()) - min(record.timestamp for record in shop.records())
    assert took < WAIT * 1e6 / 3
    (failed,) = [one for one in shop.bodies() if isinstance(one, e.AttemptFailed)]
    assert (failed.failure_class, failed.reason) == ("concurrency", body.reason)
    assert failed.exception == "rewindq.engine.effects.errors.Deadlock"
    assert verify(shop.deployment)["violations"] == []
    return body


@pytest.mark.parametrize("partitions", [1, 2, 4])
@pytest.mark.parametrize("kind", ["nest", "nest_in_a_thread"])
def test_two_jobs_that_wait_for_each_other(tmp_path: Path, partitions: int, kind: str) -> None:
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=partitions)
    x = at_home(partitions - 1, partitions)
    y = at_home(partitions // 2, partitions, after=500)
    ids = submit_circle(shop, [x, y], kind)

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 1)
    body = all_ended_well(shop, ids, "job-1")
    assert body.reason == f"deadlock: job job-0 holds {x} and waits for {y}, job job-1 holds {y} and waits for {x}"
    assert cycle_of(body) == [("job-0", x, y), ("job-1", y, x)]
    assert circle.done == ["job-0", "job-1"]


@pytest.mark.parametrize("partitions", [3, 4])
def test_three_jobs_over_three_partitions(tmp_path: Path, partitions: int) -> None:
    circle = Circle(3)
    shop = Shop(tmp_path, circle.app, partitions=partitions)
    names = [at_home((n + 1) % partitions, partitions) for n in range(3)]
    ids = submit_circle(shop, names)

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed, report.retried) == (3, 0, 1)
    body = all_ended_well(shop, ids, "job-2")
    assert cycle_of(body) == [
        ("job-0", names[0], names[1]),
        ("job-1", names[1], names[2]),
        ("job-2", names[2], names[0]),
    ]


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_a_cycle_through_the_jobs_own_resources(tmp_path: Path, partitions: int) -> None:
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=partitions)
    one, other = (at_home(n, partitions, "order", after=n) for n in (0, 1 % partitions))
    if other == one:
        other = at_home(0, partitions, "order", after=int(one[6:]) + 1)
    for job_id, own, wanted in [("a", one, other), ("b", other, one)]:
        shop.submit("merge", {"n": own[6:], "other": wanted[6:]}, job_id, key=own)

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 1)
    body = all_ended_well(shop, ["a", "b"], "b")
    assert body.reason == f"deadlock: job a holds {one} and waits for {other}, job b holds {other} and waits for {one}"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_chain_of_waiting_jobs_has_no_victim(tmp_path: Path, partitions: int) -> None:
    """Each waits for the one before, which works on; probes go along the chain again and again and come to nothing."""
    app, done = App("chain"), []
    names = [at_home(n % partitions, partitions, after=100 * n) for n in range(4)]

    @app.job()
    async def link(ctx: Context, job: Nest) -> None:
        async with ctx.lease(job.first, ttl=20):
            if job.second:
                await ctx.enqueue("link", {"first": job.second, "second": following(job.second)}, job_id=job.second)
            if job.first == names[0]:
                while len(probes(shop)) < 8 and partitions > 1:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.3)
            else:
                async with ctx.lease(names[names.index(job.first) - 1], ttl=20, wait=WAIT):
                    pass
            done.append(job.first)

    def following(name: str) -> str:
        return names[names.index(name) + 1] if name != names[-1] else ""

    shop = Shop(tmp_path, app, partitions=partitions)
    shop.submit("link", {"first": names[0], "second": names[1]}, names[0], key=names[0])

    report = shop.run(deadlock_after=0.01)

    assert (report.succeeded, report.failed, report.retried) == (4, 0, 0)
    assert done == names
    assert detections(shop) == []
    assert bool(probes(shop)) == (partitions > 1), "on one partition no edge needs a message"


def test_tasks_side_by_side_keep_nothing_from_each_other(tmp_path: Path) -> None:
    """A job's own tasks want one resource in turn; two jobs' tasks want two, in opposite order, each for itself."""
    app, inside = App("tasks"), []

    @app.job()
    async def many(ctx: Context, job: Nest) -> None:
        async def one(name: str) -> None:
            async with ctx.lease(name, ttl=20, wait=WAIT):
                inside.append(name)
                await asyncio.sleep(0.2)

        await asyncio.gather(one(job.first), one(job.second), one(job.first))

    shop = Shop(tmp_path, app, partitions=2)
    x, y = at_home(0, 2), at_home(1, 2)
    shop.submit("many", {"first": x, "second": y}, "a", key=at_home(0, 2, "key"))
    shop.submit("many", {"first": y, "second": x}, "b", key=at_home(1, 2, "key"))

    report = shop.run(deadlock_after=0.01)

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 0)
    assert len(inside) == 6
    assert detections(shop) == []
    assert probes(shop) == [], "who keeps nothing from others asks nobody"


def test_what_another_task_of_the_holder_waits_for_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Job z holds x and waits for y, which one task of job a holds for a while; the other one waits for x."""
    app, holding = App("tasks"), asyncio.Event()
    x, y = at_home(0, 2), at_home(1, 2)

    @app.job()
    async def nested(ctx: Context, job: Nest) -> None:
        async with ctx.lease(x, ttl=20):
            await holding.wait()
            async with ctx.lease(y, ttl=20, wait=WAIT):
                pass

    @app.job()
    async def apart(ctx: Context, job: Nest) -> None:
        async def work() -> None:
            async with ctx.lease(y, ttl=20):
                holding.set()
                while len(probes(shop)) < 8:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.2)

        async def want() -> None:
            await holding.wait()
            async with ctx.lease(x, ttl=20, wait=WAIT):
                pass

        await asyncio.gather(work(), want())

    shop = Shop(tmp_path, app, partitions=2)
    shop.submit("nested", {"first": "", "second": ""}, "z", key=at_home(0, 2, "key"))
    shop.submit("apart", {"first": "", "second": ""}, "a", key=at_home(0, 2, "key"))

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 0)
    assert detections(shop) == []


def test_a_cycle_through_one_of_a_jobs_tasks(tmp_path: Path) -> None:
    circle, app = Circle(2), None
    app = circle.app

    @app.job()
    async def forked(ctx: Context, job: Nest) -> None:
        async def free() -> None:
            async with ctx.lease("stock:free", ttl=20):
                await asyncio.sleep(0.1)

        async with ctx.lease(job.first, ttl=20):
            await circle.meet(ctx)

            async def wanted() -> None:
                async with ctx.lease(job.second, ttl=20, wait=WAIT):
                    circle.done.append(ctx.job_id)

            await asyncio.gather(free(), wanted())

    shop = Shop(tmp_path, app, partitions=2)
    x, y = at_home(0, 2), at_home(1, 2)
    shop.submit("forked", {"first": x, "second": y}, "z", key=at_home(0, 2, "key"))
    shop.submit("nest", {"first": y, "second": x}, "a", key=at_home(1, 2, "key"))

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed, report.retried) == (2, 0, 1)
    ((victim, body),) = detections(shop)
    assert victim == "z"
    assert cycle_of(body) == [("a", y, x), ("z", x, y)]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_job_that_asks_again_for_what_it_holds_waits_for_itself(tmp_path: Path, partitions: int) -> None:
    app, told = App("self"), []

    @app.job()
    async def twice(ctx: Context, job: Nest) -> None:
        async with ctx.lease(job.first, ttl=20):
            try:
                async with ctx.lease(job.first, ttl=20, wait=WAIT):
                    raise AssertionError("held twice")
            except Deadlock as error:
                told.append(str(error))

    shop = Shop(tmp_path, app, partitions=partitions)
    x = at_home(partitions - 1, partitions)
    shop.submit("twice", {"first": x, "second": ""}, "a", key=at_home(0, partitions, "key"))

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.retried) == (1, 0), "a handler may catch it and go on with what it holds"
    assert told == [f"deadlock: job a holds {x} and waits for {x}"]


def test_the_trace_tells_it_and_a_dry_run_repeats_it(tmp_path: Path) -> None:
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=2)
    submit_circle(shop, [at_home(0, 2), at_home(1, 2)])
    shop.run(deadlock_after=SOON)
    ((victim, body),) = detections(shop)

    with Past(shop.deployment) as past:
        (event,) = [one for one in trace_shown(past, victim)["events"] if one["type"] == "DeadlockDetected"]
    assert event["step"] == f"lease {at_home(0, 2)}"
    assert event["body"]["cycle"] == [dict(zip(("job", "holds", "waits_for"), o, strict=True)) for o in cycle_of(body)]
    assert body.reason in _detail(event)

    assert trace(shop.deployment, victim, 1).shown["steps"][-1]["status"] == "fail"
    with open_job(shop.deployment, victim) as job:
        attempt = job.recording.attempt(1)
        assert leases(job.recording, attempt)[-1]["end"] == f"refused: {body.reason}"
        replay = dry_run(shop.deployment, job, circle.app, 1)
    assert (replay.outcome, replay.divergences) == ("failed", [])
    assert replay.reason == body.reason


def test_what_a_lost_probe_would_have_found_the_next_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Deadlocks._send
    lost: list[str] = []

    def losing(self: Deadlocks, owner: Any, partition: int, body: e.LeaseProbe, path: Any) -> None:
        if len(lost) < 6:
            lost.append(body.stage)
        else:
            sent(self, owner, partition, body, path)

    monkeypatch.setattr(Deadlocks, "_send", losing)
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=4)
    ids = submit_circle(shop, [at_home(2, 4), at_home(3, 4)])

    shop.run(deadlock_after=SOON)

    assert len(lost) == 6
    all_ended_well(shop, ids, "job-1")


def test_without_any_probe_the_bound_of_the_wait_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadlocks, "_send", lambda *_: None)
    circle = Circle(2, wait=0.5)
    shop = Shop(tmp_path, circle.app, partitions=4)
    submit_circle(shop, [at_home(2, 4), at_home(3, 4)])

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed) == (2, 0)
    assert detections(shop) == []


def test_a_worker_that_ends_in_the_middle_leaves_it_to_the_next(tmp_path: Path) -> None:
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=4)
    submit_circle(shop, [at_home(2, 4), at_home(3, 4)])

    def waiting(report: Any) -> bool:
        return sum(isinstance(body, e.LeaseRequested) for body in shop.bodies()) == 2

    shop.run(waiting, deadlock_after=30, grace=0)
    assert {shop.job(job_id).status for job_id in ("job-0", "job-1")} == {s.WAITING}

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.failed) == (2, 0)


def test_who_finds_a_cycle_tells_the_victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is until the victim would ask again by itself."""
    probe = Deadlocks._probe

    def others(self: Deadlocks, waiting: Any) -> None:
        if waiting.run.job_id != "job-1":
            probe(self, waiting)

    monkeypatch.setattr(Deadlocks, "_probe", others)
    circle = Circle(2)
    shop = Shop(tmp_path, circle.app, partitions=4)
    ids = submit_circle(shop, [at_home(2, 4), at_home(3, 4)])

    shop.run(deadlock_after=SOON)

    all_ended_well(shop, ids, "job-1")


def test_a_probe_that_comes_by_several_ways_goes_on_once(tmp_path: Path) -> None:
    app, holding = App("ways"), []
    names = [at_home(n % 2, 2, after=100 * n) for n in range(4)]

    @app.job()
    async def both(ctx: Context, job: Nest) -> None:
        async def want() -> None:
            async with ctx.lease(job.second, ttl=20, wait=WAIT):
                pass

        async with ctx.lease(job.first, ttl=20):
            holding.append(job.first)
            while len(holding) < len(names):
                await asyncio.sleep(0.01)
            if job.first == names[0]:
                while len(probes(shop)) < 20:
                    await asyncio.sleep(0.05)
            else:
                await asyncio.gather(want(), want())

    shop = Shop(tmp_path, app, partitions=2)
    for n, name in enumerate(names):
        payload = {"first": name, "second": names[max(0, n - 1)]}
        shop.submit("both", payload, f"job-{n}", key=at_home((n + 1) % 2, 2, "key"))

    report = shop.run(deadlock_after=SOON)

    assert (report.succeeded, report.retried) == (4, 0)
    passed = [(body.probe, body.stage, decode_path(body.path)[-1].request_id) for body in probes(shop)]
    assert len(passed) == len(set(passed))
