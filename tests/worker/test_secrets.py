"""What a model marks secret leaves the payload in no sink: no result, answer, key, name, note, save or message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from tests.support.recorded import deployment, dry_run, fork, record
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.secrets import MASK, hide, reveal
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.submitting import SubmissionRefused
from rewindq.engine.runtime.trace import job_detail, trace_shown

SECRET = "canary-4711"
PAYLOAD = {"order_id": "o1", "card": SECRET, "pin": "12"}
MARKED: Any = Field(default="", json_schema_extra={"secret": True})
ONCE = Retry(max_attempts=2, base=0.001, cap=0.001)


class Order(BaseModel):
    order_id: str
    card: SecretStr = SecretStr("")
    pin: str = MARKED
    name: str = "Ann"


class Token(BaseModel):
    token: str = MARKED
    number: int = Field(default=0, json_schema_extra={"secret": True})
    shown: str = "yes"


class Receipt(BaseModel):
    tokens: dict[str, Token] = {}
    also: list[Token] = []
    secret: SecretStr = SecretStr("hidden-1")


def told(shop: Shop, job_id: str = "a") -> str:
    """All that is shown of a job, and every record of it but those that are its payload."""
    with Past(shop.deployment) as past:
        shown = [trace_shown(past, job_id), job_detail(past, job_id)]
    bodies = [body for body in shop.bodies(job_id) if not isinstance(body, e.JobAccepted)]
    return json.dumps(shown) + repr(bodies) + repr(shop.job(job_id))


def run(tmp_path: Path, work: Callable[..., Any]) -> Shop:
    app = App("t")
    app.job("work", retry=ONCE, resource="order:{order_id}")(work)
    app.cache_source("cards", lambda key: (f"{SECRET} of {key}", "1"))
    shop = Shop(tmp_path, app)
    shop.submit("work", PAYLOAD, "a", key="order:o1")
    shop.run()
    return shop


def test_a_models_marked_fields_are_masked_in_a_result(tmp_path: Path) -> None:
    async def work(ctx: Context, job: Order) -> Receipt:
        token = Token(token="hidden-2", number=98765)
        return Receipt(tokens={"x": token}, also=[token])

    shop = run(tmp_path, work)
    assert shop.job("a").status == s.SUCCEEDED
    assert "hidden-" not in told(shop) and "98765" not in told(shop)
    with Client(deployment=shop.deployment, app=shop.app) as client:
        token = {"token": MASK, "number": MASK, "shown": "yes"}
        assert client.result("a") == {"tokens": {"x": token}, "also": [token], "secret": MASK}


def test_the_payloads_secrets_are_masked_in_a_result(tmp_path: Path) -> None:
    async def work(ctx: Context, job: Order) -> dict[str, Any]:
        return {"text": f"paid with {job.card.get_secret_value()}", "n": 12}

    shop = run(tmp_path, work)
    assert SECRET not in told(shop)
    assert values.decode(shop.job("a").result or b"") == {"text": f"paid with {MASK}", "n": 12}


def test_an_answers_secrets_are_kept_apart_and_are_there_again_on_a_retry(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def work(ctx: Context, job: Order) -> None:
        answer = await ctx.effect("call", lambda: [f"<{SECRET}>", {SECRET: 1}], key="k")
        cached = await ctx.cache("cards", "c")
        seen.append((answer, cached))
        if ctx.attempt == 1:
            raise ConnectionError(f"lost {SECRET}")

    shop = run(tmp_path, work)
    assert shop.job("a").status == s.SUCCEEDED
    assert seen == [([f"<{SECRET}>", {SECRET: 1}], f"{SECRET} of c")] * 2
    assert SECRET not in told(shop)


def test_a_models_marked_answer_is_masked_alike_on_every_attempt(tmp_path: Path) -> None:
    seen: list[Token] = []

    def ask() -> Token:
        return Token(token="hidden-3", number=98765)

    async def work(ctx: Context, job: Order) -> None:
        seen.append(await ctx.effect("call", ask, key="k"))
        if ctx.attempt == 1:
            raise ConnectionError("lost")

    shop = run(tmp_path, work)
    assert "hidden-3" not in told(shop) and "98765" not in told(shop)
    assert [(token.token, token.shown) for token in seen] == [(MASK, "yes")] * 2


NAMES: dict[str, Callable[[Context, str], Any]] = {
    "effect key": lambda ctx, card: ctx.effect("call", called, key=f"pay-{card}"),
    "effect name": lambda ctx, card: ctx.effect(f"call {card}", called, key="k"),
    "load": lambda ctx, card: ctx.load("card", card),
    "save id": lambda ctx, card: ctx.save("card", card, {"x": 1}, expected=0),
    "save field": lambda ctx, card: ctx.save("order", "o1", {"x": [{"y": f"<{card}>"}]}, expected=0),
    "save name": lambda ctx, card: ctx.save("order", "o1", {card: 1}, expected=0),
    "cache": lambda ctx, card: ctx.cache("cards", card),
    "note name": lambda ctx, card: ctx.note(card),
    "decide name": lambda ctx, card: ctx.decide(card, 1),
    "lease": lambda ctx, card: ctx.lease(f"card:{card}"),
    "child key": lambda ctx, card: ctx.enqueue("work", {"order_id": "o2"}, key=card),
    "child id": lambda ctx, card: ctx.enqueue("work", {"order_id": "o2"}, job_id=card),
}
CALLS: list[str] = []


def called() -> None:
    CALLS.append("called")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_holds_a_secret_is_refused_before_anything_is_done(tmp_path: Path, name: str) -> None:
    CALLS.clear()

    async def work(ctx: Context, job: Order) -> None:
        pending = NAMES[name](ctx, job.card.get_secret_value())
        if hasattr(pending, "__await__"):
            await pending

    shop = run(tmp_path, work)
    job = shop.job("a")
    assert (job.status, job.attempt, CALLS) == (s.INVESTIGATION, 1, [])
    assert job.failure is not None and job.failure.failure_class == "validation"
    assert "use a digest of it" in job.failure.reason
    assert SECRET not in told(shop)


def test_a_digest_of_a_secret_is_a_key(tmp_path: Path) -> None:
    async def work(ctx: Context, job: Order) -> None:
        digest = hashlib.sha256(job.card.get_secret_value().encode()).hexdigest()
        await ctx.effect("call", called, key=digest)
        ctx.note("pin 12", pin=job.pin)

    shop = run(tmp_path, work)
    assert shop.job("a").status == s.SUCCEEDED
    notes = [body for body in shop.bodies("a") if isinstance(body, e.NoteRecorded)]
    assert values.decode(notes[0].fields) == {"pin": MASK}


def test_a_key_rule_that_shows_a_secret_is_refused(tmp_path: Path) -> None:
    app = App("t")

    @app.job(key=lambda job: job.card.get_secret_value())
    async def work(ctx: Context, job: Order) -> None: ...

    shop = Shop(tmp_path, app)
    shop.submit("work", PAYLOAD, "a")
    shop.run()
    job = shop.job("a")
    assert job.status == s.INVESTIGATION
    assert job.failure is not None and "marked" not in job.failure.reason and "marks secret" in job.failure.reason
    assert SECRET not in told(shop)
    with Client(deployment=shop.deployment, app=app) as client, pytest.raises(SubmissionRefused, match="marks secret"):
        client.submit("work", PAYLOAD)


def test_replays_see_the_secrets_and_show_none(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def order(ctx: Context, job: Order) -> str:
        answer = await ctx.effect("call", lambda card: f"<{card.get_secret_value()}>", job.card, key="k")
        seen.append(answer)
        return f"done {answer}"

    app = App("t")
    app.job("order", resource="order:{order_id}")(order)
    app.stub("call")(lambda card: f"<{card.get_secret_value()}>")
    place = deployment(tmp_path)
    with record(place, app, "order", PAYLOAD, "order:o1") as job:
        replay = dry_run(place, job, app)
        started = job.recording.attempt().started
        assert started is not None
        forked = fork(place, job, app, started.seq)
        stubbed = fork(place, job, app, started.seq, payload=values.encode({**PAYLOAD, "card": "canary-0815"}))
    assert (replay.outcome, replay.divergences) == ("succeeded", [])
    assert (forked.outcome, forked.divergences) == ("succeeded", [])
    assert seen == [f"<{SECRET}>"] * 3 + ["<canary-0815>"]
    assert "canary" not in repr([replay.divergences, forked.records, stubbed.records, stubbed.divergences])
    place.close()


@pytest.mark.parametrize("secrets", [[SECRET], ["abcd", "abcdef"], ["****", SECRET], ['qu"ote\\', "ünïcode"]])
def test_what_is_hidden_is_revealed(secrets: list[str]) -> None:
    value = {"a": [f"x{secret}y" for secret in secrets], secrets[0]: 1, "other": MASK}
    data = values.encode(value)
    hidden = hide(data, secrets)
    assert hidden != data
    assert values.decode(reveal(hidden, secrets)) == value
    assert reveal(hidden, []) == hidden
