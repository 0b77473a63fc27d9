"""NaN and the infinities are refused with their path wherever they are given, and never become something else.

The guards: `values.encode` refuses them; `json_form` (`effects/json_form.py`) sees those that pydantic would write as
null or as a text; `Gate._keep` (`effects/gate.py`) keeps an answer that cannot be recorded from being asked for again.
What other programs put into payloads: `test_malformed_records.py`; single values: `tests/unit/core/test_values.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel, Field, field_serializer, field_validator
from tests.support.cli import Shell
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import SubmissionRefused

NAN, INF = math.nan, math.inf
ENDLESS = [NAN, INF, -INF, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")]
#: The largest and the smallest, a zero with a sign, and one that has no finite binary form.
FINITE = [-0.0, 1e308, 5e-324, 0.1 + 0.2, 2**70]


class Reading(BaseModel):
    """A payload with fields of each kind that may hold a number."""

    value: float = 0.0
    anything: Any = None
    exact: Decimal | None = Field(None, allow_inf_nan=True)
    inner: Reading | None = None
    table: dict[str, list[Any]] = {}


def _in_model(value: Any) -> list[tuple[Reading, str]]:
    return [
        (Reading(anything=value), "/anything"),
        (Reading(anything=[{"deep": value}]), "/anything/0/deep"),
        (Reading(inner=Reading(anything=value)), "/inner/anything"),
        (Reading(table={"a": [1, value]}), "/table/a/1"),
        (Reading.model_construct(exact=value), "/exact")
        if isinstance(value, Decimal)
        else (Reading(value=value), "/value"),
    ]


@pytest.mark.parametrize("value", ENDLESS, ids=repr)
def test_a_submission_is_refused_with_the_path(tmp_path: Path, value: Any) -> None:
    shop = Shop(tmp_path, App("t"))
    given: list[tuple[Any, str]] = [({"a": [{"b": value}]}, "/a/0/b"), *_in_model(value)]
    with Client(deployment=shop.deployment) as client:
        for payload, path in given:
            with pytest.raises(SubmissionRefused, match=f"{path}: .*not a finite number"):
                client.submit("read", payload)
    assert shop.deployment.log.bounds(shop.topics.jobs, 0) == (0, 0)


class Sensor:
    """An app whose jobs give a number to one place after an effect; `calls` counts the effect."""

    def __init__(self, place: Callable[[Context, Any], Any], value: Any) -> None:
        self.calls = 0
        self.app = App("sensor")

        @self.app.job(retry=Retry(max_attempts=3, base=0.01))
        async def read(ctx: Context, job: Reading) -> Any:
            await ctx.effect("call", self._call, key="k")
            done = place(ctx, value)
            return await done if hasattr(done, "__await__") else done

    def _call(self) -> None:
        self.calls += 1


PLACES: dict[str, Callable[[Context, Any], Any]] = {
    "result": lambda ctx, value: {"found": [value]},
    "model": lambda ctx, value: Reading(anything={"found": value}),
    "note": lambda ctx, value: ctx.note("n", found=value),
    "decision": lambda ctx, value: ctx.decide("d", value),
    "field": lambda ctx, value: ctx.save("thing", "1", {"found": value}, expected=0),
    "argument": lambda ctx, value: ctx.effect("other", lambda found: None, value, key="k"),
    "child": lambda ctx, value: ctx.enqueue("read", {"anything": value}),
}


@pytest.mark.parametrize("value", [NAN, Decimal("Infinity")], ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_a_handlers_number_fails_its_job_once_and_its_effect_stands(tmp_path: Path, place: str, value: Any) -> None:
    sensor = Sensor(PLACES[place], value)
    shop = Shop(tmp_path, sensor.app)
    shop.submit("read", {}, "j")
    shop.run()
    job = shop.job("j")
    assert (job.status, job.attempt, sensor.calls) == (s.INVESTIGATION, 1, 1)
    assert job.failure is not None
    assert job.failure.failure_class == FailureClass.VALIDATION
    assert "not a finite number" in job.failure.reason
    assert not {"StateChanged", "ChildEnqueued", "NoteRecorded"} & set(shop.names("j"))


@pytest.mark.parametrize("answer", [NAN, {"a": [INF]}, Reading(anything=NAN)], ids=repr)
def test_an_answer_is_told_and_the_call_not_made_again(tmp_path: Path, answer: Any) -> None:
    calls: list[int] = []

    def call() -> Any:
        calls.append(1)
        return answer

    app = App("t")

    @app.job(retry=Retry(max_attempts=3, base=0.01))
    async def read(ctx: Context, job: Reading) -> None:
        await ctx.effect("call", call, key="k", idempotent=True)

    shop = Shop(tmp_path, app)
    shop.submit("read", {}, "j")
    shop.run()
    assert (shop.job("j").status, shop.job("j").attempt, calls) == (s.INVESTIGATION, 1, [1])
    (doubt,) = [body for body in shop.bodies("j") if isinstance(body, e.EffectInDoubt)]
    assert "not a finite number" in doubt.reason


def test_a_serializer_of_the_models_own_has_its_way(tmp_path: Path) -> None:
    class Told(BaseModel):
        value: float

        @field_serializer("value")
        def tell(self, value: float) -> float | str:
            return "no number" if math.isnan(value) else value

        @field_validator("value", mode="before")
        @classmethod
        def read(cls, value: object) -> object:
            return NAN if value == "no number" else value

    shop = Shop(tmp_path, App("t"))
    with Client(deployment=shop.deployment) as client:
        client.submit("read", Told(value=NAN), job_id="j")
        assert client.status("j")["status"] == "waiting"


def test_finite_numbers_survive_every_hop_and_exports_are_strict_json(tmp_path: Path) -> None:
    app = App("t")

    @app.job(retry=Retry(max_attempts=1))
    async def read(ctx: Context, job: Reading) -> Any:
        back = await ctx.effect("call", lambda found: found, job.anything, key="k")
        await ctx.save("thing", ctx.job_id, {"found": back}, expected=0)
        ctx.note("n", found=(await ctx.load("thing", ctx.job_id)).data["found"])
        if job.value:
            error = ValueError("odd")
            error.at = NAN  # type: ignore[attr-defined]
            raise error
        return back

    shop = Shop(tmp_path / ".rewindq", app)
    with Client(deployment=shop.deployment, app=app) as client:
        client.submit("read", Reading(anything=FINITE), job_id="j")
        client.submit("read", Reading(value=1, anything=FINITE), job_id="odd")
        shop.run()
        assert repr(client.result("j")) == repr(FINITE)
    assert repr(shop.aggregate("thing:j").data["found"]) == repr(FINITE)
    shop.deployment.close()

    def no_constant(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    shell = Shell(tmp_path)
    for arguments in (
        ("jobs", "show", "j"),
        ("jobs", "show", "odd"),
        ("trace", "j"),
        ("trace", "odd"),
        ("state", "thing/j"),
    ):
        out = shell.run_inside(*arguments, "--json").out
        shown = json.loads(out, parse_constant=no_constant)
        assert shown
    payload = json.loads(shell.run_inside("jobs", "show", "j", "--json").out)["payload"]
    assert repr(payload["anything"]) == repr(FINITE)


def test_the_command_line_takes_strict_json_only(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for text in ('{"a": NaN}', '{"a": -Infinity}', '{"a": 1e400}'):
        done = shell.run_inside("submit", "read", "--payload", text)
        assert done.code != 0 and "line 1 column 7" in done.err, done


def test_a_zero_keeps_its_sign_in_fingerprints() -> None:
    digests = {values.digest(values.encode(value)) for value in (0.0, -0.0, 0)}
    assert len(digests) == 3
