"""Numbers and times are the same to the last digit on every hop: payload, effect, retry, state, result and replay.

Pinned down: `core/values.py` writes integers of any size exactly, floats in their shortest form, decimals as text,
times to the microsecond with their offset, and refuses what has no exact form; `Intake` parks what a model refuses.
JSON numbers that a float would change: `unit/core/test_strict_json.py`; random values: `unit/core/test_values.py`;
narrowed schemas of events: `unit/codec/test_compat.py`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support.recorded import dry_run, open_job
from tests.support.shop import Shop
from tests.support.values import identical

from rewindq import App, Context, Retry
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import Submission, SubmissionRefused

BIG = [n + d for n in (2**31, 2**53, 2**62, 2**63, 2**64, 9223371823962989837) for d in (-1, 0, 1)]
WEST = timezone(timedelta(hours=-11, minutes=-30))
NUMBERS: list[Any] = [
    *BIG,
    *(-n for n in BIG),
    *(0.1 + 0.2, 1e308, 5e-324, -0.0, 16777217.0, 1.0, 0, 1, True, False),
    *map(Decimal, ("1.10", "1.1", "-0.0001", "123456789012345678.1234", "0.1", "1E+3")),
]
TIMES: list[Any] = [
    *(datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1901, 1969, 2038, 9999)),
    datetime(2243, 5, 5, 5, 5, 5, 64_000, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=WEST),
    [datetime(2026, 11, 29, 12, 0, 0, 5_000 + us, tzinfo=WEST) for us in range(1000)],
    date(1, 1, 1),
    date(9999, 12, 31),
    time(23, 59, 59, 999_999),
    timedelta(microseconds=-1),
    timedelta.max,
]
VALUES = [NUMBERS, TIMES]


class Which(BaseModel):
    """The number of a value."""

    at: int


class Exact(BaseModel):
    """Numbers and times with their types."""

    whole: int = 0
    real: float = 0.0
    money: Decimal = Decimal(0)
    at: datetime | None = None
    day: date | None = None
    hour: time | None = None
    span: timedelta | None = None


class Narrow(BaseModel):
    """What fits 32 bits, and is a whole number."""

    n: int = Field(ge=-(2**31), lt=2**31, strict=True)


class Place:
    """An app whose handler hands values through every hop, twice, and what it saw."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[str, list[Any]] = {}
        self.app = App("exact")
        self.shop = Shop(folder, self.app)
        self.app.job(name="hop", retry=Retry(base=0, max_attempts=2))(self._hop)
        self.app.job(name="take", retry=Retry(max_attempts=1))(self._take)
        self.client = Client(deployment=self.shop.deployment, app=self.app)

    async def _fetch(self, at: int) -> Any:
        return VALUES[at]

    async def _hop(self, ctx: Context, job: Which) -> Any:
        seen = self.seen.setdefault(f"{ctx.job_id} {ctx.mode}", [])
        answer = await ctx.effect("fetch", self._fetch, job.at, key="fetch")
        kept = await ctx.load("kept", job.at)
        if kept.version == 0:
            await ctx.save("kept", job.at, {"value": answer}, expected=0)
            kept = await ctx.load("kept", job.at)
        seen += [answer, kept["value"], ctx.decide("same", answer)]
        if ctx.attempt == 1:
            raise ConnectionError("once more, with the recorded answer")
        return answer

    async def _take(self, ctx: Context, job: Exact) -> Exact:
        self.seen[ctx.job_id] = [job]
        return job


def test_every_hop_sees_the_same_live_on_a_retry_and_in_a_dry_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.client.submit_many(Submission("hop", {"at": at}, job_id=f"hop-{at}") for at in range(len(VALUES)))
    place.shop.run()
    for at, value in enumerate(VALUES):
        job = open_job(place.shop.deployment, f"hop-{at}")
        replays = [dry_run(place.shop.deployment, job, place.app, number) for number in (1, 2)]
        assert [(replay.outcome, replay.divergences) for replay in replays] == [("failed", []), ("succeeded", [])]
        for mode in ("live", "dry-run"):
            seen = place.seen[f"hop-{at} {mode}"]
            assert len(seen) == 6 and all(identical(one, value) for one in seen), (mode, value, seen)
        assert identical(place.shop.aggregate(f"kept:{at}").data["value"], value)
        result = place.client.result(f"hop-{at}", 0)
        assert identical(result, value)
        assert values.digest(values.encode(result)) == values.digest(values.encode(value))


def test_a_payload_and_a_result_come_as_they_were(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fields = {
        "whole": int,
        "real": float,
        "money": Decimal,
        "at": datetime,
        "day": date,
        "hour": time,
        "span": timedelta,
    }
    each = [value for one in (*NUMBERS, *TIMES) for value in (one[::37] if isinstance(one, list) else [one])]
    pairs = [(name, value) for value in each for name, kind in fields.items() if type(value) is kind]
    given = {f"take-{at}": Exact(**{name: value}) for at, (name, value) in enumerate(pairs)}
    place.client.submit_many(Submission("take", payload, job_id=job_id) for job_id, payload in given.items())
    place.shop.run()
    for job_id, payload in given.items():
        for got in (place.seen[job_id][0], place.client.result(job_id, 0)):
            assert identical(got.model_dump(), payload.model_dump()), (got, payload)


def test_what_has_no_exact_form_is_refused_by_its_path(tmp_path: Path) -> None:
    place, noon = Place(tmp_path), datetime(2026, 11, 29, 12)

    @place.app.job()
    async def save(ctx: Context, job: Which) -> None:
        await ctx.save("kept", 1, {"times": [{"at": noon}]}, expected=0)

    with pytest.raises(SubmissionRefused, match=r"/times/0.*has no time zone"):
        place.client.submit("take", {"times": [noon]})
    place.client.submit("save", {"at": 0}, job_id="save")
    place.shop.run()
    failure = place.shop.job("save").failure
    assert failure is not None and "/times/0/at" in failure.reason and "has no time zone" in failure.reason
    assert place.shop.aggregate("kept:1").version == 0


def test_old_data_that_a_narrower_model_cannot_hold_is_parked_by_its_path(tmp_path: Path) -> None:
    place, got = Place(tmp_path), []

    @place.app.job(name="count")
    async def count(ctx: Context, job: Narrow) -> None:
        got.append(job.n)

    submitter = Client(deployment=place.shop.deployment)  # of an older version: it knows no model
    given = [*BIG, *(-n for n in BIG), True, 1.0]
    for at, n in enumerate(given):
        submitter.submit("count", {"n": n}, job_id=f"n-{at}")
    place.shop.run()
    fits = [n for n in given if type(n) is int and -(2**31) <= n < 2**31]
    assert sorted(got) == sorted(fits)
    for at, n in enumerate(given):
        job = place.shop.job(f"n-{at}")
        assert job.status == (s.SUCCEEDED if type(n) is int and n in fits else s.INVESTIGATION)
        assert job.failure is None or ("payload refused" in job.failure.reason and "n:" in job.failure.reason)
