"""Recorded outcomes as what the handler saw then: an effect's answer or error, a refused write, a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import events as e
from ..core import values
from ..core.expiry import DROPPED
from ..core.retry import FailureClass
from ..core.secrets import reveal
from ..core.values import ValueRefused
from ..core.writes import write_refusal as refusal_reason
from ..effects.errors import (
    Deadlock,
    EffectBusy,
    EffectConflict,
    EffectRejected,
    InDoubt,
    LeaseUnavailable,
    StepError,
    Unresolved,
    WriteRefused,
)
from ..effects.gate import EffectCall, doubted
from .errors import RecordedError, exception_class, made, rebuilt
from .recording import Occurred, Step

#: How the gate says that a call was done whose answer it could not keep.
_UNRECORDED = "the call returned, but its answer cannot be recorded: "


def effect_failure(call: EffectCall, at: Occurred, secrets: list[str]) -> tuple[StepError, str | None]:
    """The error of an effect that did not succeed, and the name of its class when that is missing."""
    body = at.body
    if isinstance(body, e.EffectInDoubt):
        return _in_doubt(call, body.reason), None
    if isinstance(body, e.IdempotencyConflict):
        message = (
            f"effect {call.name!r}: key {call.key!r} was used with other content "
            f"(recorded {body.expected_digest}, now {body.got_digest}); a new intent needs a new key"
        )
        return EffectConflict(message, step=call.step), None
    return _rejected(call, body, secrets)


def _in_doubt(call: EffectCall, reason: str) -> InDoubt:
    if reason.startswith(_UNRECORDED):
        detail = reason.removeprefix(_UNRECORDED)
        raised: InDoubt = Unresolved(
            f"effect {call.name!r} was done, but its answer cannot be recorded: {detail}", step=call.step
        )
        raised.__cause__ = made(ValueRefused, detail)
        return raised
    raised = doubted(call, reason)
    if reason.startswith(DROPPED):
        return raised
    name, _, detail = reason.partition(": ")
    raised.__cause__ = _made(name, detail, call.function)
    return raised


def _rejected(call: EffectCall, body: e.EffectFailed, secrets: list[str]) -> tuple[StepError, str | None]:
    name = (body.exception or "Exception").rpartition(".")[2]
    kept: dict[str, Any] = {} if body.error is None else values.decode(reveal(body.error, secrets))
    text = kept.get("text", body.reason)
    raised = EffectRejected(f"{name}: {text}", step=call.step, retry_after=kept.get("retry_after"))
    raised.failure_class, raised.trace = FailureClass(body.failure_class), kept.get("trace", "")
    if kept:
        raised.__cause__, missing = rebuilt(kept, call.function)
        raised.terminal = bool(getattr(raised.__cause__, "terminal", False))
        return raised, missing
    raised.__cause__ = _made(name, body.reason, call.function)
    return raised, name if isinstance(raised.__cause__, RecordedError) else None


def _made(name: str, message: str, function: Callable[..., object]) -> BaseException:
    kind = exception_class(name, function)
    return (None if kind is None else made(kind, message)) or RecordedError(name, message)


def attempt_refusal(call_step: str, body: e.AttemptFailed, function: Callable[..., object]) -> StepError:
    """The error of an effect that was refused before anything of it was recorded, and that ended the attempt."""
    kinds: dict[str, type[StepError]] = {
        FailureClass.VALIDATION: EffectConflict,
        FailureClass.CONCURRENCY: EffectBusy,
        FailureClass.IN_DOUBT: InDoubt,
    }
    exception = body.exception or ""
    own = exception_class(exception.rpartition(".")[2], function)
    kind = own if own is not None and issubclass(own, StepError) else kinds.get(body.failure_class, StepError)
    raised = kind(body.reason, step=call_step)
    raised.failure_class = FailureClass(body.failure_class)
    if own is not None and not issubclass(own, StepError):
        raised.__cause__ = made(own, body.reason)
    return raised


def write_refusal(step: str, key: str, at: Occurred) -> WriteRefused:
    """The error of a write that was refused."""
    body = at.body
    current = at.event.resource_version if isinstance(body, e.WriteFenced) else body.current
    return WriteRefused.found(key, current, body.expected, refusal_reason(body), step)


def lease_refusal(step: Step, resource: str) -> LeaseUnavailable | None:
    """The error of a lease that was not free within the wait, or whose job gave way in a deadlock; None: it was not."""
    deadlock, refused = step.find(e.DeadlockDetected), step.find(e.LeaseRefused)
    if deadlock is not None:
        return Deadlock(deadlock.body.reason, step=step.name)
    if refused is not None:
        return LeaseUnavailable.held(resource, refused.body.holder, refused.body.waited, step.name)
    return None
