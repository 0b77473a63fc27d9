"""What an effect raised is kept so that an operator sees why it was retried, and a replay raises it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from tests.support.recorded import deployment, dry_run, record

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.effects.errors import EffectRejected
from rewindq.engine.replay.errors import RecordedError
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.kept import CHAIN_MAX, MESSAGE_MAX, keep

ONCE = Retry(max_attempts=1)


class Order(BaseModel):
    order_id: str = "o1"
    card: SecretStr = SecretStr("4711-0815")


class Declined(Exception):
    """An error whose constructor wants more than a message, with attributes that code branches on."""

    def __init__(self, status: int, *, retry_after: float) -> None:
        super().__init__(f"declined with {status}", status)
        self.status = status
        self.retry_after = retry_after
        self.connection = object()

    def __str__(self) -> str:
        return f"status {self.status}"


class Picky(Exception):
    """Cannot be made from the arguments it keeps."""

    def __new__(cls, *, code: int) -> Picky:
        return super().__new__(cls)

    def __init__(self, *, code: int) -> None:
        super().__init__(code)


def declined(*_: Any) -> None:
    try:
        raise OSError(113, "No route to host")
    except OSError as error:
        raise Declined(402, retry_after=1.5) from error


def by_context(*_: Any) -> None:
    try:
        raise KeyError("a")
    except KeyError:
        raise Declined(500, retry_after=2)  # noqa: B904 - by context


def group(*_: Any) -> None:
    raise ExceptionGroup("two of them", [ValueError("one"), Declined(1, retry_after=3)])


def objects(*_: Any) -> None:
    raise RuntimeError(object)


def told(error: BaseException | None) -> Any:
    """Whatever code may branch on, and report."""
    if error is None:
        return None
    members = list(map(told, error.exceptions)) if isinstance(error, BaseExceptionGroup) else []
    return {
        "type": type(error).__qualname__,
        "text": str(error),
        "args": [] if members or isinstance(error, RuntimeError) else list(error.args),
        "status": getattr(error, "status", None),
        "retry_after": getattr(error, "retry_after", None),
        "errno": getattr(error, "errno", None),
        "cause": told(error.__cause__),
        "context": None if error.__suppress_context__ else told(error.__context__),
        "members": members,
    }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    found = deployment(tmp_path)
    yield found
    found.close()


def app_of(function: Callable[..., Any], seen: list[Any], **options: Any) -> App:
    app = App("test")

    @app.job("order", resource="order:{order_id}", retry=ONCE, **options)
    async def order(ctx: Context, job: Order) -> str:
        try:
            await ctx.effect("call", function, job.card, key="k")
        except EffectRejected as error:
            assert error.__cause__ is not None
            seen.append(error.__cause__)
            report = told(error.__cause__)
            ctx.decide("report", {**report, "rejected": str(error), "wait": error.retry_after})
        return "done"

    return app


@pytest.mark.parametrize("function", [declined, by_context, group, objects])
def test_a_replay_raises_what_was_raised(place: Deployment, function: Callable[..., Any]) -> None:
    seen: list[BaseException] = []
    app = app_of(function, seen)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        replay = dry_run(place, job, app)
    assert (replay.outcome, replay.divergences) == ("succeeded", [])
    live, again = seen
    assert type(again) is type(live)
    assert told(again) == told(live)


def test_a_class_that_cannot_be_made_has_a_stand_in_that_says_so(place: Deployment) -> None:
    def picky(*_: Any) -> None:
        raise Picky(code=7)

    seen: list[BaseException] = []
    app = app_of(picky, seen)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        replay = dry_run(place, job, app)
    assert ("error_class_missing", "call") in replay.kinds
    assert isinstance(seen[1], RecordedError)
    assert (seen[1].name, str(seen[1])) == (f"{__name__}.Picky", "7")


def kept(job: Any, kind: type[e.Body]) -> Any:
    found = [at.body for at in job.recording.attempt().events if isinstance(at.body, kind)]
    return values.decode(found[-1].error)


def test_the_trace_says_why_it_was_retried_or_not(place: Deployment) -> None:
    async def order(ctx: Context, job: Order) -> None:
        await ctx.effect("call", declined, key="k")

    app = App("test")
    app.classify(Declined, FailureClass.TRANSIENT)
    app.job("order", resource="order:{order_id}", retry=ONCE)(order)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        effect, attempt = kept(job, e.EffectFailed), kept(job, e.AttemptFailed)
    assert (effect["rule"], effect["retry_after"]) == (f"app rule for {__name__}.Declined", 1.5)
    assert effect["chain"][0] == {
        "module": __name__,
        "class": "Declined",
        "message": "status 402",
        "args": ["declined with 402", 402],
        "attributes": {"status": 402, "retry_after": 1.5},
    }
    assert (effect["chain"][1]["class"], effect["chain"][1]["by"]) == ("OSError", "cause")
    assert attempt["rule"] == "as the step failed (EffectRejected)"
    assert [entry["class"] for entry in attempt["chain"]] == ["EffectRejected", "Declined", "OSError"]


@pytest.mark.parametrize(
    ("error", "rule"), [(ConnectionError("x"), "type ConnectionError"), (ArithmeticError("x"), "no rule for its type")]
)
def test_a_handlers_own_failure_names_its_rule(place: Deployment, error: Exception, rule: str) -> None:
    async def order(ctx: Context, job: Order) -> None:
        raise error

    app = App("test")
    app.job("order", resource="order:{order_id}", retry=ONCE)(order)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        assert kept(job, e.AttemptFailed)["rule"] == rule


def test_what_is_kept_is_bounded_and_has_no_secrets(place: Deployment) -> None:
    def loud(*_: Any) -> None:
        error: BaseException = ValueError("first")
        for number in range(50):
            following = RuntimeError(f"{number} of card 4711-0815 " + "x" * 1_500)
            following.card = "4711-0815"  # type: ignore[attr-defined]
            following.__cause__ = error
            error = following
        raise error

    async def order(ctx: Context, job: Order) -> None:
        await ctx.effect("call", loud, key="k")

    app = App("test")
    app.job("order", resource="order:{order_id}", retry=ONCE)(order)
    payload = {"order_id": "o1", "card": "4711-0815"}
    with record(place, app, "order", payload, "order:o1") as job:
        found = kept(job, e.EffectFailed)
        assert dry_run(place, job, app).divergences == []
    assert 1 < len(found["chain"]) <= CHAIN_MAX
    assert all(len(entry["message"]) < MESSAGE_MAX + 50 for entry in found["chain"])
    assert "4711-0815" not in str(found)
    assert found["chain"][0]["attributes"] == {"card": "**********{0}"}


def test_a_long_message_is_cut_alike(place: Deployment) -> None:
    def loud(*_: Any) -> None:
        raise RuntimeError("x" * 10_000)

    seen: list[BaseException] = []
    app = app_of(loud, seen)
    with record(place, app, "order", {"order_id": "o1"}, "order:o1") as job:
        recorded = next(at.body for at in job.recording.attempt().events if isinstance(at.body, e.DecisionRecorded))
        dry_run(place, job, app)
    assert "(10000 characters)" in values.decode(recorded.value)["rejected"]
    assert str(seen[1]).startswith("x" * MESSAGE_MAX)


def test_a_chain_that_leads_back_to_itself_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert [entry["message"] for entry in values.decode(keep(first, "", []))["chain"]] == ["a", "b"]
