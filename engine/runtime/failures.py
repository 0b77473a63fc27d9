"""Which class of failure an exception is: the app's own rules first, then its type."""

from __future__ import annotations

import asyncio

from pydantic import ValidationError

from ..core.retry import FailureClass
from ..core.values import ValueRefused
from ..effects.errors import StepError
from .app import App
from .deployment import BodyTooLarge

_BY_TYPE: tuple[tuple[tuple[type[BaseException], ...], FailureClass], ...] = (
    ((ValidationError, ValueRefused, BodyTooLarge), FailureClass.VALIDATION),
    ((TimeoutError, asyncio.TimeoutError), FailureClass.TRANSIENT),
    ((ConnectionError, InterruptedError, BlockingIOError), FailureClass.TRANSIENT),
    ((OSError,), FailureClass.DEPENDENCY),
)


def classify(app: App, error: BaseException) -> FailureClass:
    """The class of a failure. An exception that nobody knows is `unknown`: retried within its bound, then parked."""
    return explain(app, error)[0]


def explain(app: App, error: BaseException) -> tuple[FailureClass, str]:
    """The class of a failure, and which rule made it so: the app's, the step's own, its type's, or none."""
    own, ruled = app.class_of(error), app.rule_of(error)
    if own is not None and ruled is not None:
        return own, f"app rule for {ruled.__module__}.{ruled.__qualname__}"
    if isinstance(error, StepError):
        return error.failure_class, f"as the step failed ({type(error).__qualname__})"
    for kinds, failure_class in _BY_TYPE:
        for kind in kinds:
            if isinstance(error, kind):
                return failure_class, f"type {kind.__qualname__}"
    return FailureClass.UNKNOWN, "no rule for its type"
