"""Effects under keys that jobs of several partitions share: one call, whoever asks, decided at the key's home."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.bank import (
    ELSEWHERE,
    FULL,
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

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.effects import effect_shown, list_effects
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.trace import trace_shown
from rewindq.processors.worker import claims as claims_module


@pytest.mark.parametrize("partitions", [[0, 1], [2, 2], [2, 0], [0, 2], [0, 1, 2, 3]])
def test_jobs_of_any_partitions_make_one_call_and_get_the_same_answer(tmp_path: Path, partitions: list[int]) -> None:
    entered = asyncio.Event()

    async def slowly() -> str:
        entered.set()
        await asyncio.sleep(0.1)
        return "receipt"

    bank = Bank(lambda number: slowly())
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    for number, partition in enumerate(partitions):
        submit(shop, partition, f"j{number}")

    report = shop.run()

    assert (report.succeeded, report.failed, report.retried) == (len(partitions), 0, 0)
    assert bank.calls == [0]
    assert bank.keys == {FULL}
    assert {shop.job(f"j{number}").result for number in range(len(partitions))} == {b'"receipt"'}
    names = [shop.names(f"j{number}") for number in range(len(partitions))]
    assert sum("EffectSucceeded" in one for one in names) == 1
    assert sum("EffectSkipped" in one for one in names) == len(partitions) - 1
    with Past(shop.deployment) as past:
        (shown,) = map(effect_shown, list_effects(past)[0])
    assert (shown["key"], shown["status"], shown["partition"]) == (FULL, "succeeded", 2)
    checked(shop)


def test_the_claim_is_durable_before_the_call_and_stands_in_one_trace(tmp_path: Path) -> None:
    shop: Shop

    def look(number: int) -> str:
        assert {"ClaimAnswered", "KeyClaimed", "EffectStarted"} <= set(shop.names("a"))
        return "receipt"

    bank = Bank(look)
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    with Past(shop.deployment) as past:
        told = [(event["type"], event["position"][:2]) for event in trace_shown(past, "a")["events"] if event["step"]]
    assert told == [
        ("ClaimRequested", "p0"),
        ("KeyClaimed", "p2"),
        ("ClaimAnswered", "p0"),
        ("EffectStarted", "p0"),
        ("EffectSucceeded", "p0"),
        ("KeySettled", "p2"),
    ]
    checked(shop)


@pytest.mark.parametrize("partitions", [(0, 1), (2, 0), (0, 2)])
def test_a_failure_frees_the_key_for_who_waits(tmp_path: Path, partitions: tuple[int, int]) -> None:
    async def first_fails(number: int) -> str:
        await asyncio.sleep(0.1)
        if number == 1:
            raise ValueError("card declined")
        return f"receipt {number}"

    bank = Bank(first_fails)
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, partitions[0], "a")
    submit(shop, partitions[1], "b")

    report = shop.run()

    assert (report.succeeded, report.failed) == (1, 1)
    assert len(bank.calls) == 2
    checked(shop)


@pytest.mark.parametrize("partitions", [(0, 1), (2, 0), (0, 2)])
def test_an_unknown_outcome_is_in_doubt_for_all_until_one_finds_out(
    tmp_path: Path, partitions: tuple[int, int]
) -> None:
    def silent(number: int) -> str:
        raise TimeoutError("no answer")

    bank = Bank(silent)
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=1)), partitions=PARTITIONS)
    submit(shop, partitions[0], "a")
    shop.run()
    submit(shop, partitions[1], "b")
    shop.run()

    assert len(bank.calls) == 1
    for job_id in ("a", "b"):
        failure = shop.job(job_id).failure
        assert failure is not None and failure.failure_class == "in_doubt"
        assert f"effects resolve {FULL}" in failure.reason
    failure = shop.job("b").failure
    assert failure is not None and "in job a" in failure.reason
    assert in_doubt(shop) == [(FULL, "a", 2)]
    checked(shop)

    async def find(n: int) -> str:
        return "found"

    shop.app = app_of(bank, on_doubt=find)
    with Client(deployment=shop.deployment) as client:
        client.retry("b", "it can find out now")
    shop.run()
    assert shop.job("b").result == b'"found"'
    with Client(deployment=shop.deployment) as client:
        client.retry("a", "b has found out")
    shop.run()
    assert (shop.job("a").result, len(bank.calls)) == (b'"found"', 1)
    assert in_doubt(shop) == []
    checked(shop)


@pytest.mark.parametrize("answer, calls", [("null", 2), ("error", 1)])
def test_what_a_lookup_says_counts_and_its_failure_leaves_the_doubt(tmp_path: Path, answer: str, calls: int) -> None:
    bank = Bank()

    def first_is_silent(number: int) -> str:
        if number == 1:
            raise TimeoutError("no answer")
        return f"receipt {number}"

    async def find(n: int) -> str | None:
        if answer == "error":
            raise ConnectionError("the bank is closed")
        return None

    bank.act = first_is_silent
    shop = Shop(tmp_path, app_of(bank, retry=Retry(max_attempts=2, base=0.01), on_doubt=find), partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    assert len(bank.calls) == calls
    assert in_doubt(shop) == ([] if answer == "null" else [(FULL, "a", 2)])
    assert shop.job("a").status == (s.SUCCEEDED if answer == "null" else s.INVESTIGATION)
    checked(shop)


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_other_content_is_refused_with_both_digests(tmp_path: Path, partition: int) -> None:
    bank = Bank()
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    submit(shop, 0, "a", n=1)
    shop.run()
    submit(shop, partition, "b", n=2)
    shop.run()

    assert bank.calls == [1]
    failure = shop.job("b").failure
    assert failure is not None and failure.failure_class == "validation"
    (conflict,) = [body for body in shop.bodies("b") if isinstance(body, e.IdempotencyConflict)]
    started = next(body for body in shop.bodies("a") if isinstance(body, e.EffectStarted))
    assert (conflict.key, conflict.expected_digest) == (FULL, started.request_digest)
    assert conflict.got_digest in failure.reason and conflict.expected_digest in failure.reason
    checked(shop)


@pytest.mark.parametrize("waits_on", [1, 2])
def test_who_has_waited_long_enough_is_told_who_makes_the_call(
    tmp_path: Path, waits_on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "CLAIM_WAIT", 0.05)
    shop: Shop

    async def until_refused(number: int) -> str:
        submit(shop, waits_on, "b")
        while not any(isinstance(body, e.AttemptFailed) for body in shop.bodies("b")):
            await asyncio.sleep(0.01)
        return "receipt"

    bank = Bank(until_refused)
    shop = Shop(tmp_path, app_of(bank), partitions=PARTITIONS)
    submit(shop, 0, "a")

    report = shop.run()

    assert (report.succeeded, report.failed, len(bank.calls)) == (2, 0, 1)
    failed = next(body for body in shop.bodies("b") if isinstance(body, e.AttemptFailed))
    assert failed.failure_class == "concurrency"
    assert failed.reason.startswith(f"effect 'charge': a is making the call with key '{FULL}' right now")
    checked(shop)


def test_the_same_attempt_cannot_wait_for_itself(tmp_path: Path) -> None:
    bank = Bank()
    app = App("bank")

    @app.job(retry=QUICK)
    async def pay(ctx: Context, job: Item) -> None:
        twice = (ctx.effect("charge", bank.charge, 1, global_key=SHARED) for _ in range(2))
        await asyncio.gather(*twice)

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    submit(shop, 0, "a")
    shop.run()
    failure = shop.job("a").failure
    assert failure is not None and "await it before this attempt asks for it again" in failure.reason
    assert len(bank.calls) <= 1
    checked(shop)


@pytest.mark.parametrize(
    "given, told",
    [
        ({}, "give key= or global_key="),
        ({"global_key": " "}, "blank"),
        ({"key": "", "global_key": "g"}, "blank"),
        ({"global_key": 7}, "a text that names this intent"),
    ],
)
def test_one_key_must_be_there_and_none_blank(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    app = App("bank")

    @app.job()
    async def pay(ctx: Context, job: Item) -> None:
        await ctx.effect("charge", Bank().charge, 1, **given)

    shop = Shop(tmp_path, app)
    shop.submit("pay", {}, "a")
    shop.run()
    failure = shop.job("a").failure
    assert failure is not None and failure.failure_class == "validation" and told in failure.reason


def test_with_both_keys_the_global_one_names_the_call(tmp_path: Path) -> None:
    bank = Bank()
    app = App("bank")

    @app.job()
    async def pay(ctx: Context, job: Item) -> str:
        receipt: str = await ctx.effect("charge", bank.charge, 1, key=ctx.job_id, global_key=SHARED)
        return receipt

    shop = Shop(tmp_path, app, partitions=PARTITIONS)
    for partition in ELSEWHERE:
        submit(shop, partition, f"j{partition}")
    shop.run()
    assert bank.calls == [1]
