"""One job's life in a worker: accepted, run, retried, parked, cancelled, delayed; each as the trace tells it."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values

SOON = Retry(max_attempts=3, base=0.01, cap=0.05)


class Item(BaseModel):
    """A small payload."""

    n: int = 0


def test_success_leaves_its_result_and_every_step(tmp_path: Path) -> None:
    app = App("t")

    @app.job(resource="item:{n}")
    async def work(ctx: Context, job: Item) -> Item:
        item = await ctx.load("item", job.n)
        ctx.decide("new", not item.exists, version=item.version)
        assert await ctx.effect("call", lambda n: n + 1, job.n, key="once") == 8
        assert await ctx.save("item", job.n, {"price": Decimal("1.10")}, expected=item.version) == 1
        ctx.note("done", n=job.n)
        return Item(n=8)

    shop = Shop(tmp_path, app, partitions=4)
    shop.submit("work", {"n": 7}, "a")
    shop.run()
    job = shop.job("a")
    assert (job.status, job.attempt, values.decode(job.result or b"")) == (s.SUCCEEDED, 1, {"n": 8})
    assert shop.names("a") == [
        "JobAccepted",
        "AttemptStarted",
        "StepCompleted",
        "DecisionRecorded",
        "EffectStarted",
        "EffectSucceeded",
        "StateChanged",
        "NoteRecorded",
        "JobSucceeded",
    ]
    assert shop.aggregate("item:7").data == {"price": Decimal("1.10")}
    started = next(event for r in shop.records("a") for event in r.events if isinstance(event.body, e.AttemptStarted))
    assert started.fencing_token == 1


def test_plain_functions_run_in_threads_with_the_same_surface(tmp_path: Path) -> None:
    app = App("t")
    threads = []

    @app.job(resource="item:{n}")
    def work(ctx, job: Item) -> None:  # type: ignore[no-untyped-def]
        threads.append(threading.current_thread() is threading.main_thread())
        item = ctx.load("item", job.n)
        ctx.effect("call", lambda: 1, key="k")
        with ctx.lease("item:7") as lease:
            assert lease.token == 1
        ctx.save("item", job.n, {"seen": str(ctx.now().tzinfo)}, expected=item.version)

    shop = Shop(tmp_path, app)
    shop.submit("work", {"n": 7}, "a")
    shop.run()
    assert shop.job("a").status == s.SUCCEEDED, shop.job("a")
    assert threads == [False]
    assert shop.aggregate("item:7").data == {"seen": "UTC"}


def test_transient_failures_are_retried_and_the_effect_is_not_repeated(tmp_path: Path) -> None:
    app = App("t")
    calls: list[str] = []

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", calls.append, "x", key="k")
        if ctx.attempt < 3:
            raise ConnectionError("down")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    assert (shop.job("a").status, shop.job("a").attempt, calls) == (s.SUCCEEDED, 3, ["x"])
    names = shop.names("a")
    assert (names.count("EffectStarted"), names.count("EffectSkipped"), names.count("RetryScheduled")) == (
        1,
        2,
        2,
    )


def test_an_exhausted_job_moves_to_investigation_with_its_step(tmp_path: Path) -> None:
    app = App("t")

    def down() -> None:
        raise RuntimeError("boom")

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", down, key="k")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    job = shop.job("a")
    assert (job.status, job.attempt) == (s.INVESTIGATION, 3)
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.step) == ("unknown", "call")
    assert "boom" in job.failure.reason
    low, end = shop.deployment.log.bounds(shop.topics.investigation, 0)
    assert end - low == 1


def test_validation_is_never_retried_and_others_do_not_wait(tmp_path: Path) -> None:
    app = App("t")
    app.classify(KeyError, FailureClass.VALIDATION)

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Item) -> None:
        if job.n == 0:
            raise KeyError("bad")

    shop = Shop(tmp_path, app)
    for n in range(5):
        shop.submit("work", {"n": n}, f"j{n}")
    shop.run()
    assert (shop.job("j0").status, shop.job("j0").attempt) == (s.INVESTIGATION, 1)
    assert all(shop.job(f"j{n}").status == s.SUCCEEDED for n in range(1, 5))


def test_a_time_out_is_unknown_and_goes_to_a_person_unless_it_can_be_looked_up(tmp_path: Path) -> None:
    app = App("t")
    done: list[int] = []

    async def charge(n: int) -> str:
        done.append(n)
        await asyncio.sleep(60)
        return "never"

    def find(n: int) -> str | None:
        return f"found {n}" if n in done else None

    @app.job(retry=SOON)
    async def blind(ctx: Context, job: Item) -> str:
        return str(await ctx.effect("charge", charge, job.n, key="k", timeout=0.05))

    @app.job(retry=SOON)
    async def seeing(ctx: Context, job: Item) -> str:
        return str(await ctx.effect("charge", charge, job.n, key="k", timeout=0.05, on_doubt=find))

    shop = Shop(tmp_path, app)
    shop.submit("blind", {"n": 1}, "blind")
    shop.submit("seeing", {"n": 2}, "seeing")
    shop.run()
    blind_job, seeing_job = shop.job("blind"), shop.job("seeing")
    assert blind_job.status == s.INVESTIGATION
    assert blind_job.failure is not None
    assert blind_job.failure.failure_class == "in_doubt"
    assert seeing_job.status == s.SUCCEEDED
    assert values.decode(seeing_job.result or b"") == "found 2"
    assert sorted(done) == [1, 2]


def test_attempt_time_out_ends_the_attempt_and_leaves_its_call_in_doubt(tmp_path: Path) -> None:
    app = App("t")

    async def hang() -> None:
        await asyncio.sleep(60)

    @app.job(retry=SOON, timeout=0.1)
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("call", hang, key="k")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    assert shop.job("a").status == s.INVESTIGATION
    assert "EffectInDoubt" in shop.names("a")


def test_conflicting_writes_run_again_and_lose_nothing(tmp_path: Path) -> None:
    app = App("t")

    @app.job(key="counter:c")
    async def add(ctx: Context, job: Item) -> None:
        counter = await ctx.load("counter", "c")
        await asyncio.sleep(0.001)
        await ctx.save("counter", "c", {"n": counter.get("n", 0) + 1}, expected=counter.version)

    shop = Shop(tmp_path, app, partitions=4)
    for n in range(20):
        shop.submit("add", {"n": n}, f"j{n}")
    shop.run()
    assert shop.aggregate("counter:c").data == {"n": 20}
    assert any(isinstance(body, e.WriteConflict) for body in shop.bodies())


def test_jobs_of_one_resource_run_one_at_a_time_in_order(tmp_path: Path) -> None:
    app = App("t")
    running: list[int] = []
    order: list[int] = []

    @app.job(resource=lambda job: "one")
    async def work(ctx: Context, job: Item) -> None:
        running.append(job.n)
        assert running == [job.n]
        await asyncio.sleep(0.002)
        order.append(job.n)
        running.remove(job.n)

    shop = Shop(tmp_path, app, partitions=4)
    for n in range(15):
        shop.submit("work", {"n": n}, f"j{n}", key="one")
    shop.run()
    assert order == list(range(15))
    tokens = [
        event.fencing_token
        for record in shop.records()
        for event in record.events
        if isinstance(event.body, e.AttemptStarted)
    ]
    assert tokens == list(range(1, 16))


def test_priority_then_age(tmp_path: Path) -> None:
    app = App("t")
    order: list[int] = []

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        order.append(job.n)

    shop = Shop(tmp_path, app)
    for n, priority in enumerate([0, 0, 5, -3, 5]):
        shop.submit("work", {"n": n}, f"j{n}", priority=priority)
    shop.run(concurrency=1)
    assert order == [2, 4, 0, 1, 3]


def test_delayed_jobs_wait_for_their_time(tmp_path: Path) -> None:
    app = App("t")
    ran: list[int] = []

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        ran.append(shop.deployment.clock.now_us())

    shop = Shop(tmp_path, app)
    due = shop.deployment.clock.now_us() + 300_000
    shop.submit("work", {}, "a", due=due)
    shop.run()
    assert shop.job("a").status == s.SUCCEEDED
    assert due <= ran[0] < due + 2_000_000


def test_the_same_id_twice_is_one_job_and_other_content_is_told_apart(tmp_path: Path) -> None:
    app = App("t")
    ran: list[int] = []

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        ran.append(job.n)

    shop = Shop(tmp_path, app)
    for n in (1, 1, 2):
        shop.submit("work", {"n": n}, "a")
    shop.run()
    assert ran == [1]
    duplicates = [body for body in shop.bodies("a") if isinstance(body, e.SubmissionDuplicated)]
    assert [duplicate.same for duplicate in duplicates] == [True, False]


def test_bad_input_is_parked_with_its_bytes_and_the_rest_runs(tmp_path: Path) -> None:
    app = App("t")

    @app.job()
    async def work(ctx: Context, job: Item) -> None: ...

    shop = Shop(tmp_path, app, unknown_type_wait=0)
    shop.append(shop.topics.jobs, b"\xff\xfenot avro")
    shop.append(shop.topics.jobs, None)
    shop.submit("nobody", {"n": 1}, "unknown-type")
    shop.submit("work", {"n": "many"}, "refused")
    shop.submit("work", b"not json", "not-json")
    shop.submit("work", {"n": 1}, "good")
    shop.run()
    assert shop.job("good").status == s.SUCCEEDED
    for job_id in ("unknown-type", "refused", "not-json", "rewindq.jobs-p0-0", "rewindq.jobs-p0-1"):
        assert shop.job(job_id).status == s.INVESTIGATION, job_id
    parked = [body for body in shop.bodies("rewindq.jobs-p0-0") if isinstance(body, e.MovedToInvestigation)]
    assert parked[0].original == b"\xff\xfenot avro"
    failure = shop.job("unknown-type").failure
    assert failure is not None
    assert "'nobody'" in failure.reason
    assert "work" in failure.reason


def test_an_operator_sends_a_parked_job_back(tmp_path: Path) -> None:
    app = App("t")
    fixed = False

    @app.job(retry=Retry(max_attempts=1))
    async def work(ctx: Context, job: Item) -> None:
        if not fixed:
            raise RuntimeError("broken")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    assert shop.job("a").status == s.INVESTIGATION
    fixed = True
    shop.input(shop.topics.commands, "a", e.RetryCommand("c1", "fixed", "me"), "a")
    shop.input(shop.topics.commands, "a", e.RetryCommand("c2", "twice", "me"), "a")
    shop.run()
    assert (shop.job("a").status, shop.job("a").attempt) == (s.SUCCEEDED, 2)
    assert any(isinstance(body, e.CommandRefused) for body in shop.bodies("a"))


def test_cancel_ends_waiting_and_running_jobs(tmp_path: Path) -> None:
    app = App("t")

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        await asyncio.sleep(60)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "running")
    shop.submit("work", {}, "delayed", due=shop.deployment.clock.now_us() + 60_000_000)

    async def cancel(worker) -> None:  # type: ignore[no-untyped-def]
        while "running" not in worker._attempts.running:
            await asyncio.sleep(0.01)
        for job_id in ("running", "delayed"):
            shop.input(shop.topics.commands, job_id, e.CancelCommand("c", "enough", "me"), job_id)

    shop.run(during=cancel)
    for job_id in ("running", "delayed"):
        assert (shop.job(job_id).status, shop.job(job_id).cancel_reason) == (s.CANCELLED, "enough")


def test_an_orderly_shutdown_hands_back_without_using_an_attempt_up(tmp_path: Path) -> None:
    app = App("t")
    hang = True

    @app.job(retry=Retry(max_attempts=1))
    async def work(ctx: Context, job: Item) -> None:
        if hang:
            await asyncio.sleep(60)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def stop(worker) -> None:  # type: ignore[no-untyped-def]
        while "a" not in worker._attempts.running or worker._attempts.running["a"].task is None:
            await asyncio.sleep(0.01)
        worker.stop()

    shop.run(until=lambda report: False, during=stop, grace=0.05)
    assert shop.job("a").status == s.WAITING
    hang = False
    shop.run()
    assert shop.job("a").status == s.SUCCEEDED
    assert "AttemptFailed" not in shop.names("a")
