"""A value that looks like another type's is read back as itself, or refused by its path before anything is sent.

Pinned down: `engine/runtime/read_back.py` compares a payload's model with what its JSON is read as, `effects/marked.py`
(`json_form`) and `core/values.py` (`encode_plain`) refuse bytes that JSON would change, tags of `core/values.py` keep
what is saved, answered and returned. Random values: `unit/core/test_values.py`; events: `unit/codec/test_avro.py`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import SubmissionRefused


class Card(BaseModel):
    """Looks like an account without its bank."""

    number: str


class Account(BaseModel):
    """Looks like a card with something more."""

    number: str
    bank: str = "none"


class Cash(BaseModel):
    """Tagged."""

    kind: Literal["cash"] = "cash"
    n: int = 0


class Cheque(BaseModel):
    """Tagged, and else the same."""

    kind: Literal["cheque"] = "cheque"
    n: int = 0


class Gold(Card):
    """A card with a field of its own."""

    limit: int = 0


class Color(StrEnum):
    """Looks like text."""

    RED = "red"


class Loose(BaseModel):
    """One field for each way to be ambiguous."""

    record: Card | Account | None = None
    tagged: Annotated[Cash | Cheque, Field(discriminator="kind")] | None = None
    base: Card | None = None
    octets: bytes | None = None
    octets_or_text: bytes | str | None = None
    number: int | float | None = None
    flag: bool | int | None = None
    color: Color | str | None = None
    map_or_record: dict[str, Any] | Card | None = None
    anything: Any = None
    money: Decimal | None = None
    text_or_money: str | Decimal | None = None
    money_or_text: Decimal | str | None = None
    text_or_time: str | datetime | None = None
    span_or_time: timedelta | time | None = None


class Octets(BaseModel):
    """Says how it writes bytes."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    octets: bytes


class Marked(BaseModel):
    """Has secrets, the second one ambiguous."""

    pin: SecretStr = SecretStr("0000-1111")
    other: Any = Field(default=None, json_schema_extra={"secret": True})


AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
KEPT: list[dict[str, Any]] = [
    {"record": Card(number="1")},
    {"record": Account(number="1")},
    {"record": Account(number="1", bank="b")},
    {"tagged": Cash(n=1)},
    {"tagged": Cheque(n=1)},
    {"octets": b"text"},
    {"octets_or_text": b"text"},
    *({"number": n} for n in (1, 1.0, -0.0, 2**53 + 1, 5e-324, 1e308, 16777217.0)),
    {"flag": True},
    {"flag": 1},
    {"color": "blue"},
    {"map_or_record": {"number": "1"}},
    {"anything": [1, 1.0, True, None, {"a": "b"}]},
    *({"money": Decimal(d)} for d in ("1.10", "1.1", "-0", "1E+2", "123456789012345678.1234")),
    {"money_or_text": Decimal("1.50")},
    {"text_or_money": "1.5"},
    {"text_or_time": "2026-11-29T12:00:00Z"},
    {"span_or_time": timedelta(seconds=5)},
]
CHANGED: list[dict[str, Any]] = [
    {"base": Gold(number="1", limit=5)},
    {"octets_or_text": "text"},
    {"color": Color.RED},
    {"map_or_record": Card(number="1")},
    {"anything": Decimal("1.10")},
    {"anything": {"deep": [1, b"text"]}},
    {"anything": AT},
    {"text_or_money": Decimal("1.5")},
    {"money_or_text": "1.5"},
    {"text_or_time": AT},
    {"span_or_time": time(0, 0, 5)},
]


def same(a: Any, b: Any) -> bool:
    """Equal, with equal types and signs all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, BaseModel):
        return all(same(getattr(a, name), getattr(b, name)) for name in type(a).model_fields)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b) and str(a) == str(b)


class Place:
    """An app that takes `Loose`, and what its handler got."""

    def __init__(self, folder: Path) -> None:
        self.got: dict[str, Any] = {}
        self.app = App("loose")
        self.shop = Shop(folder, self.app)
        self.app.job(name="take", retry=Retry(max_attempts=1))(self._take)
        self.client = Client(deployment=self.shop.deployment, app=self.app)

    async def _take(self, ctx: Context, job: Loose) -> None:
        self.got[ctx.job_id] = job

    def sent(self) -> int:
        return self.shop.deployment.log.bounds(self.shop.topics.jobs, 0)[1]


def test_what_is_accepted_comes_as_it_was_and_writes_the_same_bytes_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    given = {f"job-{n}": Loose(**fields) for n, fields in enumerate(KEPT)}
    for job_id, payload in given.items():
        place.client.submit("take", payload, job_id=job_id)
    place.shop.run()
    for job_id, payload in given.items():
        assert same(place.got[job_id], payload), (place.got[job_id], payload)
        place.client.submit("take", place.got[job_id], job_id=job_id)
    place.shop.run()
    again = [body for body in place.shop.bodies() if isinstance(body, e.SubmissionDuplicated)]
    assert len(again) == len(given) and all(body.same for body in again)


@pytest.mark.parametrize("fields", CHANGED, ids=lambda fields: f"{next(iter(fields))}-{fields}")
def test_what_would_be_read_as_something_else_is_refused_by_its_path(tmp_path: Path, fields: dict[str, Any]) -> None:
    place = Place(tmp_path)
    (path,) = fields
    with pytest.raises(SubmissionRefused, match=f"/{path}.*this .* would be read back as .*make the field's types"):
        place.client.submit("take", Loose(**fields))
    assert place.sent() == 0


def test_bytes_stay_bytes_or_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)

    @place.app.job()
    async def take_octets(ctx: Context, job: Octets) -> bytes:
        place.got["octets"] = job.octets
        await ctx.save("blob", "1", {"octets": job.octets}, expected=0)
        return job.octets

    for payload in (Loose(octets=b"\xff\x00"), {"octets": b"\xff\x00"}, {"octets": b"text"}):
        with pytest.raises(SubmissionRefused, match=r"/octets: (these bytes are no UTF-8.*base64|JSON has no bytes)"):
            place.client.submit("take", payload)
    assert place.sent() == 0
    place.client.submit("take_octets", Octets(octets=b"\xff\x00"), job_id="o")
    place.shop.run()
    assert place.got["octets"] == place.client.result("o") == b"\xff\x00"
    assert place.shop.aggregate("blob:1").data["octets"] == b"\xff\x00"


def test_what_an_answer_or_result_cannot_keep_is_named_and_the_call_is_not_made_again(tmp_path: Path) -> None:
    place, calls = Place(tmp_path), 0

    async def fetch() -> Loose:
        nonlocal calls
        calls += 1
        return Loose(octets=b"\xff")

    @place.app.job()
    async def answer(ctx: Context, job: Cash) -> None:
        await ctx.effect("fetch", fetch, key="fetch")

    @place.app.job()
    async def result(ctx: Context, job: Cash) -> Loose:
        return Loose(octets=b"\xff")

    for name in ("answer", "result"):
        place.client.submit(name, {}, job_id=name)
    place.shop.run()
    assert calls == 1
    for name in ("answer", "result"):
        failure = place.shop.job(name).failure
        assert failure is not None and "/octets: these bytes are no UTF-8" in failure.reason


def test_a_refusal_shows_no_value(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(SubmissionRefused) as refused:
        place.client.submit("take", Marked(other=Decimal("4711.4711")))
    assert "4711" not in str(refused.value) and "/other" in str(refused.value)


def test_a_field_that_the_model_does_not_know_is_kept_in_the_payload(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.client.submit("take", {"number": 1, "more": {"deep": 1}}, job_id="more")
    place.shop.run()
    (accepted,) = [body for body in place.shop.bodies("more") if isinstance(body, e.JobAccepted)]
    assert accepted.payload == b'{"more":{"deep":1},"number":1}'
