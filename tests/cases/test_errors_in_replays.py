"""A handler that tells the next step of an error tells the same in a replay: text, attributes, causes and traceback.

Guards: `runtime/kept.py` keeps what the handler was given (`text`, `trace`, the chain), with the payload's secrets as
places that `reveal` fills again in `replay/answers.py`; `replay/errors.py` makes the exceptions anew and names a class
that is gone. Every kind of exception is in `tests/unit/replay/test_recorded_errors.py`, the rules in `tests/worker`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.recorded import Replay, deployment, dry_run, record

from rewindq import App
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.replay.source import JobPast
from rewindq.engine.runtime.deployment import Deployment

SECRET = "4711-0815"
#: A module of an application. `{gap}` moves its lines; `{declined}` is its exception.
SOURCE = """
from pydantic import BaseModel, SecretStr
from rewindq import App, Context, Retry
from rewindq.engine.effects.errors import EffectRejected
{gap}
class Order(BaseModel):
    order_id: str
    card: SecretStr

{declined}

def pay(card):
    try:
        raise OSError(113, "no route for card " + card.get_secret_value())
    except OSError as error:
        raise failure(f"declined card {{card.get_secret_value()}}") from error

def several(card):
    raise ExceptionGroup("both", [ValueError("one"), failure("two")])

def report(text, given):
    return len(text)

app = App("test")

@app.job("order", resource="order:{{order_id}}", retry=Retry(max_attempts=1))
async def order(ctx: Context, job: Order) -> str:
    for name, function in (("pay", pay), ("several", several)):
        try:
            await ctx.effect(name, function, job.card, key=name)
        except EffectRejected as error:
            cause = error.__cause__
            given = {{
                "type": type(cause).__name__, "message": str(error), "cause": str(cause),
                "because": repr(cause.__cause__),
                "status": getattr(cause, "status", None), "trace": error.trace,
                "members": [str(one) for one in getattr(cause, "exceptions", ())],
            }}
            await ctx.effect(f"report {{name}}", report, str(error), given, key=f"report-{{name}}")
            if getattr(cause, "status", None) == 402:
                ctx.decide("branch", f"wait {{error.retry_after}}")
            elif isinstance(cause, ExceptionGroup):
                ctx.decide("branch", "group")
    return "done"
"""
DECLINED = """class DeclinedPayment(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.status = 402
        self.retry_after = 1.5

failure = DeclinedPayment"""
GONE = "failure = KeyError"


def written(path: Path, gap: int, declined: str = DECLINED) -> App:
    """The application's module, as it would be found at another place or in a later version."""
    path.write_text(SOURCE.format(gap="\n" * gap, declined=declined))
    module = ModuleType("payments_of_the_case")
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), vars(module))
    return module.app  # type: ignore[no-any-return]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


@pytest.fixture
def job(place: Deployment, tmp_path: Path) -> Iterator[JobPast]:
    payload = {"order_id": "o1", "card": SECRET}
    with record(place, written(tmp_path / "live.py", 0), "order", payload, "order:o1") as job:
        yield job


def test_the_next_step_is_told_the_same_from_another_place_and_line(
    place: Deployment, job: JobPast, tmp_path: Path
) -> None:
    replay = dry_run(place, job, written(tmp_path / "elsewhere.py", 40))
    assert (replay.outcome, replay.divergences) == ("succeeded", [])
    steps = [step.name for step in job.recording.attempt().steps if step.kind == "effect"]
    assert steps == ["pay", "report pay", "several", "report several"]
    decided = [at.body for at in job.recording.attempt().events if isinstance(at.body, e.DecisionRecorded)]
    assert [values.decode(body.value) for body in decided] == ["wait 1.5", "group"]


def test_the_trace_keeps_the_traceback_and_no_secret(job: JobPast, tmp_path: Path) -> None:
    failed = [at.body for at in job.recording.attempt().events if isinstance(at.body, e.EffectFailed)]
    kept = values.decode(failed[0].error or b"")
    assert f'File "{tmp_path / "live.py"}"' in kept["trace"] and "no route for card" in kept["trace"]
    assert kept["text"] == "declined card **********{0}"
    others = [at.body for at in job.recording.events if not isinstance(at.body, e.JobAccepted)]
    assert SECRET not in repr(others)


def test_a_class_that_is_gone_is_named_and_nothing_breaks(place: Deployment, job: JobPast, tmp_path: Path) -> None:
    def gone(replay: Replay) -> Any:
        return [one for one in replay.divergences if one["kind"] == "error_class_missing"]

    for kind in Exception.__subclasses__():
        if kind.__qualname__ == "DeclinedPayment":
            kind.__qualname__ = "Gone"  # the process that recorded it is this one, so the class is still there
    replay = dry_run(place, job, written(tmp_path / "later.py", 3, GONE))
    assert replay.outcome != "error" and gone(replay), replay.divergences
    assert "payments_of_the_case.DeclinedPayment" in str(gone(replay)[0])
