"""Which class of failure an exception is: the app's own rules first, then its type."""

from __future__ import annotations

import asyncio

from pydantic import ValidationError

from ..core.retry import FailureClass
from ..core.values import ValueRefused
from ..effects.errors import StepError
from .app import App

_BY_TYPE: tuple[tuple[tuple[type[BaseException], ...], FailureClass], ...] = (
    ((ValidationError, ValueRefused), FailureClass.VALIDATION),
    ((TimeoutError, asyncio.TimeoutError), FailureClass.TRANSIENT),
    ((ConnectionError, InterruptedError, BlockingIOError), FailureClass.TRANSIENT),
    ((OSError,), FailureClass.DEPENDENCY),
)


def classify(app: App, error: BaseException) -> FailureClass:
    """The class of a failure. An exception that nobody knows is `unknown`: retried within its bound, then parked."""
    own = app.class_of(error)
    if own is not None:
        return own
    if isinstance(error, StepError):
        return error.failure_class
    for kinds, failure_class in _BY_TYPE:
        if isinstance(error, kinds):
            return failure_class
    return FailureClass.UNKNOWN
