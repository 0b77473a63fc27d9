"""A job that fails for good undoes what it did outside, last first, before a person looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from tests.support import undoing
from tests.support.recorded import deployment, dry_run, fork
from tests.support.recorded import submit as submit_to
from tests.support.recorded import work as work_on
from tests.support.shop import Shop
from tests.support.undoing import BROKEN, LEDGER, Trip, book_room, made, undo_by_name

from rewindq import App, Context, Retry
from rewindq.engine.blobs.folder import FolderBlobs
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.replay.recording import NoRecording
from rewindq.engine.replay.source import open_job
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.effects import Resolution, answer_of, effect_shown, list_effects
from rewindq.engine.runtime.verify import verify

DONE = ["flight Rome 2A trip/flight/f-a", "room 2", "mail"]
UNDONE = ["undo room 7 2", "undo flight-Rome Rome 2A trip/flight/f-a/compensate"]


@pytest.fixture(autouse=True)
def _outside() -> Iterator[None]:
    LEDGER.clear()
    BROKEN.clear()
    yield
    LEDGER.clear()
    BROKEN.clear()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, made())
    shop.submit("trip", {}, "a", key="trip")
    yield shop
    checked = verify(shop.deployment)
    assert checked["ok"], checked["violations"]
    shop.deployment.close()


def command(shop: Shop, what: str, *args: Any) -> None:
    with Client(deployment=shop.deployment) as client:
        getattr(client, what)(*args, "mended")


def reason_of(shop: Shop) -> str:
    failure = shop.job("a").failure
    assert failure is not None
    return failure.reason


def last(shop: Shop, kind: type[e.Body]) -> Any:
    return [body for body in shop.bodies("a") if isinstance(body, kind)][-1]


def test_effects_are_undone_last_first_and_the_job_goes_to_a_person(shop: Shop) -> None:
    shop.run()
    assert [*DONE, *UNDONE] == LEDGER
    job = shop.job("a")
    assert (job.status, job.attempt, job.compensating) == (s.INVESTIGATION, 3, None)
    assert job.failure is not None
    assert job.failure.failure_class == "unknown"
    assert "no car to be had" in job.failure.reason
    assert job.failure.reason.endswith("; compensated: room, flight")
    assert last(shop, e.CompensationStarted).steps == ("room", "flight")
    assert last(shop, e.CompensationEnded) == e.CompensationEnded(("room", "flight"), (), None)
    compensated = [
        (event.step, type(event.body).__name__)
        for record in shop.records("a")
        for event in record.events
        if event.status == "compensated" and event.step
    ]
    assert compensated == [("room/compensate", "EffectSucceeded"), ("flight/compensate", "EffectSucceeded")]
    assert shop.deployment.log.bounds(shop.topics.investigation, 0)[1] == 1
    with Client(deployment=shop.deployment) as client:
        shown = {one["step"]: one["compensation"] for one in map(effect_shown, list_effects(client.past)[0])}
    assert shown == {
        "flight": "succeeded",
        "room": "succeeded",
        "mail": None,
        "flight/compensate": None,
        "room/compensate": None,
    }


def test_a_retry_after_that_calls_anew_under_a_key_that_the_other_side_does_not_know(shop: Shop) -> None:
    shop.run()
    LEDGER.clear()
    BROKEN["mended"] = RuntimeError()
    command(shop, "retry", "a")
    shop.run()
    assert shop.job("a").status == s.SUCCEEDED
    assert LEDGER == ["flight Rome 2A trip/flight/f-a/2", "room 2"]
    assert "IdempotencyKeyUnstable" not in shop.names("a")


def test_a_second_failure_undoes_the_second_calls(shop: Shop) -> None:
    shop.run()
    LEDGER.clear()
    command(shop, "retry", "a")
    shop.run()
    assert LEDGER == [
        "flight Rome 2A trip/flight/f-a/2",
        "room 2",
        "undo room 7 2",
        "undo flight-Rome Rome 2A trip/flight/f-a/2/compensate",
    ]
    assert "IdempotencyKeyUnstable" not in shop.names("a")


def test_one_that_fails_is_retried_then_told_and_the_next_retry_goes_on_with_it(shop: Shop) -> None:
    BROKEN["room"] = RuntimeError("hotel is closed")
    shop.run()
    assert LEDGER == DONE
    assert (shop.job("a").status, shop.job("a").attempt) == (s.INVESTIGATION, 4)
    assert "no car to be had" in reason_of(shop)
    assert "not compensated: room, flight (room/compensate: RuntimeError: hotel is closed" in reason_of(shop)
    BROKEN.clear()
    BROKEN["flight"] = RuntimeError("desk is closed")
    command(shop, "retry", "a")
    shop.run()
    assert [*DONE, UNDONE[0]] == LEDGER
    assert "; compensated: room; not compensated: flight (flight/compensate: RuntimeError: desk" in reason_of(shop)
    BROKEN.clear()
    command(shop, "retry", "a")
    shop.run()
    assert [*DONE, *UNDONE] == LEDGER
    assert reason_of(shop).endswith("; compensated: room, flight")


def test_one_in_doubt_is_told_with_its_key_and_resolved_by_a_person(shop: Shop) -> None:
    BROKEN["room"] = TimeoutError("no answer")
    shop.run()
    assert LEDGER == DONE
    assert "not compensated: room, flight" in reason_of(shop)
    assert "rewindq effects resolve trip/room/r-a/compensate --succeeded" in reason_of(shop)
    with Client(deployment=shop.deployment) as client:
        client.resolve("trip/room/r-a/compensate", Resolution(True, answer_of("null")), "the hotel says so")
        client.retry("a", "told")
    shop.run()
    assert [*DONE, UNDONE[1]] == LEDGER
    assert reason_of(shop).endswith("; compensated: room, flight")


def test_who_asks_for_what_may_have_been_undone_is_in_doubt_too(shop: Shop) -> None:
    app = shop.app = App("shared")
    app.compensation("cancel-room")(undo_by_name)

    @app.job(key=lambda job: "trip", retry=Retry(max_attempts=1))
    async def share(ctx: Context, job: Trip) -> None:
        await ctx.effect("room", book_room, Trip(), key="r", compensate="cancel-room")
        if job.fails:
            raise RuntimeError("no car to be had")

    BROKEN["room"] = TimeoutError("no answer")
    shop.submit("share", {}, "first", key="trip")
    shop.run(lambda report: report.failed == 1)
    shop.submit("share", {"fails": False}, "second", key="trip")
    shop.run(lambda report: report.failed == 1)
    assert LEDGER.count("room 2") == 1
    failure = shop.job("second").failure
    assert failure is not None and failure.failure_class == "in_doubt"
    assert "rewindq effects resolve trip/room/r/compensate --succeeded" in failure.reason


def test_an_idempotent_effects_compensation_in_doubt_is_sent_again(shop: Shop) -> None:
    BROKEN["flight"] = TimeoutError("no answer")

    async def mend(worker: Any) -> None:
        while not any(isinstance(body, e.EffectInDoubt) for body in shop.bodies("a")):
            await asyncio.sleep(0.01)
        BROKEN.clear()

    shop.app.types["trip"] = made(max_attempts=6, base=0.3).types["trip"]
    shop.run(during=mend)
    assert LEDGER[-2:] == UNDONE


class Crash(Exception):
    """Stands for a worker that is gone without an orderly end."""


def test_after_a_crash_another_worker_goes_on_and_undoes_nothing_twice(shop: Shop) -> None:
    BROKEN["flight"] = RuntimeError("desk is closed")
    shop.app = made(max_attempts=50, base=0.05, cap=0.05)

    async def die(worker: Any) -> None:
        while not any(isinstance(b, e.EffectFailed) and b.key.endswith("/compensate") for b in shop.bodies("a")):
            await asyncio.sleep(0.01)
        worker.failure = Crash()
        worker.wake()

    shop.app.types["trip"] = shop.app.types["trip"]._replace(retry=Retry(max_attempts=2, base=0.05, cap=0.05))
    with pytest.raises(Crash):
        shop.run(until=lambda report: False, during=die)
    assert [*DONE, UNDONE[0]] == LEDGER
    BROKEN.clear()
    shop.app = made()
    shop.run()
    assert [*DONE, *UNDONE] == LEDGER
    assert shop.job("a").status == s.INVESTIGATION


def test_while_it_undoes_the_job_is_not_cancelled(shop: Shop) -> None:
    BROKEN["room"] = RuntimeError("hotel is closed")
    shop.app = made(base=5, cap=5)
    shop.app.types["trip"] = shop.app.types["trip"]._replace(retry=Retry(max_attempts=1))

    async def cancel(worker: Any) -> None:
        shop.app.types["trip"] = shop.app.types["trip"]._replace(retry=Retry(max_attempts=2, base=0.5))
        while "CompensationStarted" not in shop.names("a"):
            await asyncio.sleep(0.01)
        shop.input(shop.topics.commands, "a", e.CancelCommand("c1", "enough", "me"), "trip")

    shop.run(during=cancel)
    assert "is being undone" in last(shop, e.CommandRefused).reason
    assert shop.job("a").status == s.INVESTIGATION


def test_a_job_whose_outcome_is_unknown_undoes_nothing(tmp_path: Path) -> None:
    app = App("t")

    async def hang() -> None:
        raise TimeoutError

    @app.job(retry=Retry(max_attempts=2, base=0.01))
    async def work(ctx: Context, job: Empty) -> None:
        await ctx.effect("flight", undoing.book_flight, "x", seat="1", key="k", compensate=undoing.undo_flight)
        await ctx.effect("call", hang, key="k")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")
    shop.run()
    assert shop.job("a").status == s.INVESTIGATION
    assert len(LEDGER) == 1
    assert "CompensationStarted" not in shop.names("a")
    shop.deployment.close()


class Empty(BaseModel):
    """Nothing but a secret."""

    pin: SecretStr = SecretStr("4711-0815")


def _nested() -> Any:
    def inner(result: Any, *args: Any) -> None: ...

    return inner


REFUSED: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "lambda": (lambda result: None, (), "@app.compensation"),
    "nested": (_nested(), (), "@app.compensation"),
    "unknown name": ("nobody", (), "has no compensation 'nobody'"),
    "other arguments": (undoing.undo_room, (1, 2, 3), "must take the effect's result"),
    "secret": ("any", (SecretStr("x"),), "a secret is not recorded"),
    "payload's secret": ("any", ("4711-0815",), "holds a secret of the payload"),
    "too large": ("any", ("x" * 20_000,), "over the limit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_undone_later_is_refused_before_the_call(tmp_path: Path, case: str) -> None:
    compensate, args, named = REFUSED[case]
    app = App("t")

    @app.compensation("any")
    def undo(result: Any, *args: Any) -> None: ...

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    async def work(ctx: Context, job: Empty) -> None:
        await ctx.effect("call", lambda *args: LEDGER.append("called"), *args, key="k", compensate=compensate)

    shop = Shop(tmp_path, app)
    shop.deployment.blobs = None
    shop.submit("work", {"pin": "4711-0815"}, "a")
    shop.run()
    assert (shop.job("a").status, shop.job("a").attempt, LEDGER) == (s.INVESTIGATION, 1, [])
    assert named in reason_of(shop)
    shop.deployment.close()


def test_names_of_compensations_are_checked() -> None:
    app = made()
    for name in ("", "a:b", "cancel-room"):
        with pytest.raises(AppError, match="compensation"):
            app.compensation(name)


def test_a_compensation_that_is_gone_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path, made())
    shop.submit("trip", {}, "a", key="trip")

    async def rename(worker: Any) -> None:
        while "mail" not in LEDGER:
            await asyncio.sleep(0)
        del shop.app.compensations["cancel-room"]

    shop.run(during=rename)
    assert "not compensated: room, flight (room/compensate: compensation 'cancel-room' is not registered" in reason_of(
        shop
    )
    shop.deployment.close()


def test_large_arguments_and_answers_come_from_the_blob_store(tmp_path: Path) -> None:
    shop = Shop(tmp_path, made(), body_limit_bytes=256)
    shop.deployment.blobs = FolderBlobs(tmp_path / "blobs")
    town = "x" * 500
    shop.submit("trip", {"to": town}, "a", key="trip")
    shop.run()
    assert LEDGER[-1] == f"undo flight-{town} {town} 2A trip/flight/f-a/compensate"
    assert last(shop, e.EffectSucceeded).evidence == "call"
    shop.deployment.close()


def test_a_poison_job_undoes_what_it_did(shop: Shop) -> None:
    shop.app.types["trip"] = shop.app.types["trip"]._replace(max_lost=1, retry=Retry(max_attempts=2, base=30))

    async def hang(*args: Any) -> str:
        await asyncio.sleep(60)
        return "never"

    async def handler(ctx: Context, job: undoing.Trip) -> str:
        await ctx.effect("room", undoing.book_room, job, key="r-a", compensate="cancel-room")
        return await hang()

    shop.app.types["trip"] = shop.app.types["trip"]._replace(function=handler)

    async def die(worker: Any) -> None:
        while "EffectSucceeded" not in shop.names("a"):
            await asyncio.sleep(0.01)
        worker.failure = Crash()
        worker.wake()

    with pytest.raises(Crash):
        shop.run(until=lambda report: False, during=die)
    shop.run()
    assert LEDGER == ["room 2", "undo room 7 2"]
    assert "poison job" in reason_of(shop)
    assert reason_of(shop).endswith("compensated: room")


def test_replays_run_handlers_only(tmp_path: Path) -> None:
    place = deployment(tmp_path)
    app = made()
    submit_to(place, "trip", {}, "job-1", "trip")
    work_on(place, app)
    before = list(LEDGER)
    with open_job(place, "job-1") as job:
        assert job.recording.attempt().number == 2
        with pytest.raises(NoRecording, match="ran no handler"):
            job.recording.attempt(3)
        replay = dry_run(place, job, app)
        assert (replay.outcome, replay.divergences) == ("failed", [])
    BROKEN["mended"] = RuntimeError()
    with Client(deployment=place) as client:
        client.retry("job-1", "mended")
    LEDGER.clear()
    work_on(place, app)
    after = list(LEDGER)
    with open_job(place, "job-1") as job:
        replay = dry_run(place, job, app)
        assert (replay.outcome, replay.divergences) == ("succeeded", [])
        started = job.recording.attempt().started
        assert started is not None
        forked = fork(place, job, app, started.seq)
        assert (forked.outcome, forked.divergences) == ("succeeded", [])
        assert [body.key for body in forked.bodies(e.EffectStarted)] == ["trip/flight/f-job-1/2", "trip/room/r-job-1/2"]
    assert LEDGER == after != before
    place.close()
