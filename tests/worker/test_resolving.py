"""A person resolves an effect whose outcome nobody knows: the next attempt gets the answer, or calls anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.blobs.folder import FolderBlobs
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.values import JsonRefused
from rewindq.engine.runtime.client import Client, CommandRefusedError, NotFound
from rewindq.engine.runtime.deployment import BodyTooLarge
from rewindq.engine.runtime.effects import Resolution, answer_of, effect_shown, list_effects
from rewindq.engine.runtime.verify import verify

KEY = "a/charge/k"
NOT_DONE = Resolution(False)


class Item(BaseModel):
    """A small payload."""

    n: int = 0


class Till:
    """A shop whose first charge times out; `calls` counts those that were made."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.calls = 0
        app = App("t")

        async def charge() -> str:
            self.calls += 1
            if self.calls == 1:
                raise TimeoutError("no answer")
            return f"receipt {self.calls}"

        @app.job(retry=Retry(max_attempts=1))
        async def work(ctx: Context, job: Item) -> str:
            receipt: str = await ctx.effect("charge", charge, key="k")
            return receipt

        self.shop = Shop(folder, app, **settings)
        self.shop.submit("work", {}, "a")
        self.shop.run()

    def resolve(self, key: str, resolution: Resolution, **fields: Any) -> None:
        with Client(deployment=self.shop.deployment) as client:
            client.resolve(key, resolution, "asked the bank", **fields)

    def retry(self) -> s.JobState:
        with Client(deployment=self.shop.deployment) as client:
            client.retry("a", "told")
        self.shop.run()
        return self.shop.job("a")


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    till = Till(tmp_path)
    yield till
    assert verify(till.shop.deployment)["ok"], verify(till.shop.deployment)["violations"]
    till.shop.deployment.close()


def test_a_succeeded_call_is_answered_and_not_made_again(till: Till) -> None:
    failure = till.shop.job("a").failure
    assert failure is not None
    assert f"rewindq effects resolve {KEY} --succeeded" in failure.reason
    till.resolve(KEY, Resolution(True, answer_of('"receipt 9"')), actor="ann")
    job = till.retry()
    assert (job.status, values.decode(job.result or b""), till.calls) == (s.SUCCEEDED, "receipt 9", 1)
    told = next(
        (r, event) for r in till.shop.records("a") for event in r.events if isinstance(event.body, e.EffectResolved)
    )
    assert isinstance(told[1].body, e.EffectResolved)
    assert (told[1].body.actor, told[1].body.reason, told[1].step) == ("ann", "asked the bank", "charge")
    skipped = next(
        event for r in till.shop.records("a") for event in r.events if isinstance(event.body, e.EffectSkipped)
    )
    assert (skipped.status, skipped.body.position) == ("skipped", told[0].seq)  # type: ignore[attr-defined]


def test_a_failed_call_is_made_anew(till: Till) -> None:
    till.resolve(KEY, NOT_DONE)
    job = till.retry()
    assert (job.status, values.decode(job.result or b""), till.calls) == (s.SUCCEEDED, "receipt 2", 2)


def test_without_a_resolution_a_retry_leads_back_to_investigation(till: Till) -> None:
    job = till.retry()
    assert (job.status, till.calls) == (s.INVESTIGATION, 1)
    assert job.failure is not None
    assert f"rewindq effects resolve {KEY} --succeeded" in job.failure.reason


def test_a_second_word_is_refused_in_log_order(till: Till) -> None:
    till.resolve(KEY, NOT_DONE)
    till.resolve(KEY, Resolution(True))
    till.shop.run()
    refused = [body for body in till.shop.bodies("a") if isinstance(body, e.CommandRefused)]
    assert [body.reason for body in refused] == [f"effect {KEY!r} is not in doubt: it is recorded as failed"]
    with pytest.raises(CommandRefusedError, match="recorded as failed"):
        till.resolve(KEY, NOT_DONE)
    with pytest.raises(NotFound, match="effects list"):
        till.resolve("a/charge/other", NOT_DONE)
    with pytest.raises(ValueError, match="reason"), Client(deployment=till.shop.deployment) as client:
        client.resolve(KEY, NOT_DONE, " ")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"answer": b"{1}"}, "cannot be recorded"),
        ({"answer": b'"' + b"x" * 20_000 + b'"'}, "over the limit"),
        ({"answer_ref": "sha256:" + "0" * 64}, "blob"),
    ],
)
def test_what_an_effect_could_not_record_is_refused_by_the_worker(till: Till, fields: Any, named: str) -> None:
    command = {"answer": None, "answer_ref": None} | fields
    body = e.ResolveCommand("c1", "r", "me", KEY, "succeeded", **command)
    till.shop.input(till.shop.topics.commands, "a", body, "a")
    till.shop.run()
    (refused,) = [body for body in till.shop.bodies("a") if isinstance(body, e.CommandRefused)]
    assert named in refused.reason


def test_a_large_answer_goes_through_the_blob_store(tmp_path: Path) -> None:
    till = Till(tmp_path, body_limit_bytes=256)
    text = "x" * 1000
    till.shop.deployment.blobs = None
    with pytest.raises(BodyTooLarge):
        till.resolve(KEY, Resolution(True, answer_of(f'"{text}"')))
    till.shop.deployment.blobs = FolderBlobs(tmp_path / "blobs")
    till.resolve(KEY, Resolution(True, answer_of(f'"{text}"')))
    job = till.retry()
    assert job.result_ref is not None
    assert values.decode(till.shop.deployment.blobs.get(job.result_ref)) == text


def test_answers_are_strict_json_in_the_form_of_an_effects_own() -> None:
    assert answer_of("null") is None
    assert answer_of('{"b": 1, "a": {"$decimal": "1.10"}}') == b'{"a":{"$decimal":"1.10"},"b":1}'
    with pytest.raises(JsonRefused):
        answer_of('{"a": 1, "a": 2}')


def test_while_an_attempt_runs_nobody_is_asked(tmp_path: Path) -> None:
    app = App("t")
    calls: list[int] = []

    async def charge() -> None:
        calls.append(1)
        raise TimeoutError

    async def find() -> str:
        await asyncio.sleep(60)
        return "never"

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    async def work(ctx: Context, job: Item) -> None:
        await ctx.effect("charge", charge, key="k", on_doubt=find)

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "a")

    async def resolve(worker: Any) -> None:
        while shop.names("a").count("AttemptStarted") < 2:
            await asyncio.sleep(0.01)
        command = e.ResolveCommand("c1", "r", "me", KEY, "failed", None, None)
        shop.input(shop.topics.commands, "a", command, "a")
        while "CommandRefused" not in shop.names("a"):
            await asyncio.sleep(0.01)
        worker.stop()

    shop.run(until=lambda report: False, during=resolve, grace=0.01)
    (refused,) = [body for body in shop.bodies("a") if isinstance(body, e.CommandRefused)]
    assert "attempt 2 of job a is running" in refused.reason
    shop.deployment.close()


def test_listing_tells_what_is_in_doubt(till: Till) -> None:
    with Client(deployment=till.shop.deployment) as client:
        found, total = list_effects(client.past, in_doubt=True, job_id="a")
        (shown,) = map(effect_shown, found)
        assert total == 1
        assert (
            shown.items() >= {"key": KEY, "status": "in_doubt", "job_id": "a", "attempt": 1, "step": "charge"}.items()
        )
        assert "no answer" in shown["reason"]
        assert list_effects(client.past, job_id="other") == ([], 0)
        till.resolve(KEY, NOT_DONE)
        till.shop.run()
        assert list_effects(client.past, in_doubt=True) == ([], 0)
        assert [one.record.status for one in list_effects(client.past, limit=1)[0]] == [s.FAILED]
