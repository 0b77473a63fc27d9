"""Recorded outcomes as what the handler saw then: an effect's answer or error, a refused write, a lease."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator

from ..core import events as e
from ..core.retry import FailureClass
from ..core.values import ValueRefused
from ..effects.errors import (
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
from .recording import Occurred, Step

#: How the gate says that a call was done whose answer it could not keep.
_UNRECORDED = "the call returned, but its answer cannot be recorded: "


class RecordedError(Exception):
    """Stands for a recorded exception whose class is not to be found any more. `name` is the class's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def effect_failure(call: EffectCall, at: Occurred) -> tuple[StepError, str | None]:
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
    return _rejected(call, body)


def _in_doubt(call: EffectCall, reason: str) -> InDoubt:
    if reason.startswith(_UNRECORDED):
        detail = reason.removeprefix(_UNRECORDED)
        raised: InDoubt = Unresolved(
            f"effect {call.name!r} was done, but its answer cannot be recorded: {detail}", step=call.step
        )
        raised.__cause__ = made(ValueRefused, detail)
        return raised
    raised = doubted(call, reason)
    name, _, detail = reason.partition(": ")
    kind = exception_class(name, call.function)
    raised.__cause__ = RecordedError(name, detail) if kind is None else made(kind, detail)
    return raised


def _rejected(call: EffectCall, body: e.EffectFailed) -> tuple[StepError, str | None]:
    name = body.exception or "Exception"
    raised = EffectRejected(f"{name.rpartition('.')[2]}: {body.reason}", step=call.step)
    raised.failure_class = FailureClass(body.failure_class)
    kind = exception_class(name, call.function)
    raised.__cause__ = RecordedError(name, body.reason) if kind is None else made(kind, body.reason)
    return raised, name if kind is None else None


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
    fenced = isinstance(body, e.WriteFenced)
    what = "the fencing token is stale" if fenced else f"{body.writer} has written since"
    return WriteRefused(f"{key} is at version {current}, expected {body.expected}: {what}", step=step)


def lease_refusal(step: Step, resource: str, wait: float, body: e.LeaseRefused) -> LeaseUnavailable:
    """The error of a lease that was not free within the wait."""
    return LeaseUnavailable(f"{resource} is held by {body.holder}; waited {wait:g} s", step=step.name)


def made(kind: type[BaseException], message: str) -> BaseException:
    """An exception as it was raised, as far as it is recorded: its class and message; its own `__init__` may want
    arguments that nobody knows any more.
    """
    error = kind.__new__(kind, message)
    error.args = (message,)
    return error


def exception_class(name: str, function: Callable[..., object]) -> type[BaseException] | None:
    """The exception class of a recorded qualified name: a builtin, one of the function's module, or any other."""
    own = getattr(builtins, name, None)
    if isinstance(own, type) and issubclass(own, BaseException):
        return own
    home = getattr(function, "__module__", None)
    found = [kind for kind in _subclasses(BaseException) if kind.__qualname__ == name]
    found.sort(key=lambda kind: (kind.__module__ != home, kind.__module__ not in sys.modules))
    return found[0] if found else None


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for sub in type.__subclasses__(kind):
        yield sub
        yield from _subclasses(sub)
