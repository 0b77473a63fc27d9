"""Claims of global keys when workers, homes and attempts end in the middle, and when a person or nobody tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.bank import (
    ELSEWHERE,
    FULL,
    KEYS,
    PARTITIONS,
    QUICK,
    SHARED,
    Bank,
    Item,
    app_of,
    checked,
    in_doubt,
    submit,
)
from tests.support.shop import Shop

from rewindq import App, Context, InDoubt, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.effects import Resolution, answer_of
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import claims as claims_module
from rewindq.processors.worker.claims import Claims


@pytest.mark.parametrize("partition", [0, 2])
@pytest.mark.parametrize("where", ["claimed", "called"])
def test_a_lost_attempt_leaves_its_key_free_or_in_doubt(tmp_path: Path, partition: int, where: str) -> None:
    """The worker stops as a killed one does: nothing of its attempt is decided. The next one takes over."""
    bank = Bank()
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, partition, "a")

    async def never(number: int) -> str:
        await asyncio.Event().wait()
        return ""

    bank.act = never
    killed(shop, lambda: "ClaimRequested" in shop.names("a") if where == "claimed" else bool(bank.calls), where)
    bank.act = lambda number: f"receipt {number}"
    submit(shop, 1, "b")
    shop.run()

    if where == "claimed":
        assert {shop.job("a").status, shop.job("b").status} == {s.SUCCEEDED}
        assert len(bank.calls) == 1
    else:
        assert {shop.job("a").status, shop.job("b").status} == {s.INVESTIGATION}
        assert len(bank.calls) == 1
        assert in_doubt(shop) == [(FULL, "a", 2)]
    checked(shop)


class Killed(Exception):
    """Ends a worker in the middle."""


def killed(shop: Shop, reached: Callable[[], bool], where: str) -> None:
    """Runs a worker until a condition holds, and ends it as a kill does: nothing more of it is committed."""

    async def kill(worker: Any) -> None:
        while not reached():
            await asyncio.sleep(0.005)
        worker.failure = Killed()
        worker.wake()

    with pytest.raises(Killed), pytest.MonkeyPatch.context() as patch:
        if where == "claimed":
            # The answer does not come before the end.
            patch.setattr(Claims, "_told", lambda *_: None)
        shop.run(until=lambda report: False, during=kill)


@pytest.mark.parametrize("partition", ELSEWHERE)
def test_the_home_may_pass_on_while_somebody_waits(
    tmp_path: Path, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits at the home is kept in memory only: when that is lost, the asker asks again and gets the answer."""
    monkeypatch.setattr(claims_module, "ASK_AGAIN", 0.05)
    shop: Shop

    async def slowly(number: int) -> str:
        submit(shop, partition, "b")
        while "ClaimRequested" not in shop.names("b"):
            await asyncio.sleep(0.01)
        waiting = workers[0]._attempts.remote.claims.keys
        while not waiting._waiting:
            await asyncio.sleep(0.01)
        waiting.drop_partition(2)
        return "receipt"

    workers: list[Any] = []

    async def keep(worker: Any) -> None:
        workers.append(worker)

    shop = Shop(tmp_path, app_of(Bank(slowly)), partitions=PARTITIONS)
    submit(shop, 2, "a")
    report = shop.run(during=keep)
    assert (report.succeeded, report.failed, report.retried) == (2, 0, 0)
    checked(shop)


@pytest.mark.parametrize("partition", [0, 2])
def test_a_persons_word_is_taken_once_under_one_request_id(tmp_path: Path, partition: int) -> None:
    async def silent(number: int) -> str:
        raise TimeoutError("no answer")

    shop = Shop(tmp_path, app_of(Bank(silent), retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, partition, "a")
    shop.run()
    answers = []
    for turn in range(3):
        with Client(deployment=shop.deployment) as client:
            answers.append(client.resolve(FULL, Resolution(False), "asked", request_id="r1", timeout=0))
        if turn == 1:
            shop.run()
    assert [answer.state for answer in answers] == ["queued", "queued", "done"]
    told = [body for body in shop.bodies("a") if getattr(body, "command_id", None) == answers[0].command_id]
    assert sorted(type(body).__name__ for body in told) == ["EffectResolved", "KeySettled"]
    checked(shop)


@pytest.mark.parametrize("partition", [0, 2])
@pytest.mark.parametrize("done", [True, False])
def test_a_persons_word_settles_the_key_and_stands_in_the_jobs_trace(
    tmp_path: Path, partition: int, done: bool
) -> None:
    def first_is_silent(number: int) -> str:
        if number == 1:
            raise TimeoutError("no answer")
        return f"receipt {number}"

    bank = Bank(first_is_silent)
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, partition, "a")
    shop.run()
    with Client(deployment=shop.deployment) as client:
        client.resolve(FULL, Resolution(done, answer_of('"told"') if done else None), "asked the bank", "ann")
    shop.run()
    assert in_doubt(shop) == []
    (told,) = [body for body in shop.bodies("a") if isinstance(body, e.EffectResolved)]
    assert (told.key, told.actor, told.outcome) == (FULL, "ann", "succeeded" if done else "failed")
    with Client(deployment=shop.deployment) as client:
        client.retry("a", "told")
    shop.run()
    assert values.decode(shop.job("a").result or b"") == ("told" if done else "receipt 2")
    assert len(bank.calls) == (1 if done else 2)
    checked(shop)


def test_a_person_is_not_heard_while_the_call_may_still_be_made(tmp_path: Path) -> None:
    bank = Bank()
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)

    async def until_refused(number: int) -> str:
        command = e.ResolveCommand("c1", "r", "me", FULL, "failed", None, None)
        shop.input(shop.topics.commands, "a", command, "", 2)
        while "CommandRefused" not in shop.names("a"):
            await asyncio.sleep(0.01)
        return "receipt"

    bank.act = until_refused
    submit(shop, 0, "a")
    shop.run()
    (refused,) = [body for body in shop.bodies("a") if isinstance(body, e.CommandRefused)]
    assert f"attempt 1 of job a has claimed '{FULL}'" in refused.reason
    assert shop.job("a").status == s.SUCCEEDED
    checked(shop)


def test_a_success_counts_from_an_owner_that_was_replaced_and_nothing_else_does(tmp_path: Path) -> None:
    async def silent(number: int) -> str:
        raise InDoubt("nobody knows")

    bank = Bank(silent)
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    for outcome in ("failed", "free", "in_doubt", "succeeded"):
        assert in_doubt(shop) == [(FULL, "a", 2)]
        body = e.SettleRequest("a/1/1", FULL, 0, outcome, None, b'"late"' if outcome == "succeeded" else None)
        record = e.EventRecord(e.UNNUMBERED, 0, 1, 0, "w", "a", 1, (e.Event(body, step="charge"),))
        shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=2)
        shop.run()
    assert in_doubt(shop) == []
    submit(shop, 1, "b")
    shop.run()
    assert (shop.job("b").result, len(bank.calls)) == (b'"late"', 1)


def send(shop: Shop, job_id: str, body: e.Body, epoch: int) -> None:
    """Appends a request to partition 2, as a worker of that epoch does."""
    record = e.EventRecord(e.UNNUMBERED, 0, 1, epoch, "w", job_id, 1, (e.Event(body, step="charge"),))
    shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=2)


def test_a_claim_for_an_attempt_that_is_over_is_given_back(tmp_path: Path) -> None:
    bank = Bank()
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    send(shop, "gone", e.ClaimRequest("gone/1/1", FULL, "another", 0, False, 0), 1)
    shop.run()
    assert shop.names("gone") == ["KeyClaimed", "KeySettled"]
    assert [body.outcome for body in shop.bodies("gone") if isinstance(body, e.KeySettled)] == ["free"]


@pytest.mark.parametrize(
    "key, partition, epoch, why",
    [
        (FULL, 0, 0, "epoch 0 of partition 0, which has epoch 1 now"),
        (FULL, 9, 1, "partition 9"),
        ("/charge", 0, 1, "no global key"),
        (f"/charge/{KEYS[0]}", 0, 1, "at home on partition 0"),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused_by_name(
    tmp_path: Path, key: str, partition: int, epoch: int, why: str
) -> None:
    bank = Bank()
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    send(shop, "late", e.ClaimRequest("late/1/1", key, "d", partition, False, 0), epoch)
    send(shop, "late", e.SettleRequest("late/1/1", key, partition, "succeeded"), epoch)
    shop.input(shop.topics.commands, "late", e.ResolveCommand("c", "r", "me", key, "failed", None, None), "", 2)
    shop.run()
    refused = [body for body in shop.bodies("late") if isinstance(body, e.RequestRefused)]
    assert [body.op for body in refused] == ["claim", "settle"]
    assert why in refused[0].reason
    assert "KeyClaimed" not in shop.names("late")
    assert verify(shop.deployment)["violations"] == []


@pytest.mark.parametrize("partition", [0, 2])
def test_an_answer_that_comes_twice_frees_nothing(
    tmp_path: Path, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is asked for again and again before its home has read the first request."""
    monkeypatch.setattr(claims_module, "ASK_AGAIN", 0.0001)
    answers: list[e.Body] = []
    told = Claims.take

    def take(self: Claims, owner: Any, record: Any, event: Any, body: Any, leases: Any) -> None:
        answers.append(body)
        told(self, owner, record, event, body, leases)

    monkeypatch.setattr(Claims, "take", take)

    async def slowly(number: int) -> str:
        submit(shop, 1, "b")
        while "ClaimRequested" not in shop.names("b"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return "receipt"

    bank = Bank(slowly)
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    submit(shop, partition, "a")
    report = shop.run()
    assert (report.succeeded, len(bank.calls)) == (2, 1)
    claimed = [body for body in answers if isinstance(body, e.ClaimReply) and body.outcome == "claimed"]
    assert len(claimed) > 1 or partition == 2
    assert "free" not in [body.outcome for body in answers if isinstance(body, e.SettleRequest)]
    checked(shop)


def test_a_success_that_its_home_was_not_told_of_is_told_again(tmp_path: Path) -> None:
    bank = Bank()
    app = App("bank")

    @app.job(retry=QUICK)
    async def pay(ctx: Context, job: Item) -> str:
        receipt: str = await ctx.effect("charge", bank.charge, job.n, global_key=SHARED, idempotent=True)
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return receipt

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, 0, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "outcome", lambda self, run, event: run.flush((event,)))
        shop.run(until=lambda report: report.retried == 1)
    submit(shop, 1, "b")
    shop.run()
    assert (shop.job("a").result, shop.job("b").result, len(bank.calls)) == (b'"receipt 1"', b'"receipt 1"', 1)
    checked(shop)


def test_a_cancelled_waiter_leaves_nothing_behind(tmp_path: Path) -> None:
    shop: Shop

    async def while_cancelled(number: int) -> str:
        submit(shop, 1, "b")
        while "ClaimRequested" not in shop.names("b"):
            await asyncio.sleep(0.01)
        shop.input(shop.topics.commands, "b", e.CancelCommand("c", "wrong", "me"), KEYS[1])
        while "JobCancelled" not in shop.names("b"):
            await asyncio.sleep(0.01)
        return "receipt"

    shop = Shop(tmp_path, app_of(Bank(while_cancelled)), partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    assert (shop.job("a").status, shop.job("b").status) == (s.SUCCEEDED, s.CANCELLED)
    assert "KeyClaimed" not in shop.names("b")
    checked(shop)
