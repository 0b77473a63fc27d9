"""Rewindq: a replayable worker queue."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewindq.engine.core.aggregate import DELETE
    from rewindq.engine.core.retry import Backoff, FailureClass, Retry
    from rewindq.engine.effects.errors import (
        AttemptEnded,
        BadStep,
        Deadlock,
        EffectBlocked,
        EffectBusy,
        EffectConflict,
        EffectRejected,
        InDoubt,
        LeaseUnavailable,
        NoAnswer,
        StepError,
        WriteRefused,
    )
    from rewindq.engine.runtime.app import App, AppError
    from rewindq.engine.runtime.blocking import BlockingContext
    from rewindq.engine.runtime.client import Client, NotFound, NotSucceeded, Receipt, Submission, SubmissionRefused
    from rewindq.engine.runtime.context import Aggregate, Context

    __version__: str

__all__ = [
    "DELETE",
    "Aggregate",
    "App",
    "AppError",
    "AttemptEnded",
    "Backoff",
    "BadStep",
    "BlockingContext",
    "Client",
    "Context",
    "Deadlock",
    "EffectBlocked",
    "EffectBusy",
    "EffectConflict",
    "EffectRejected",
    "FailureClass",
    "InDoubt",
    "LeaseUnavailable",
    "NoAnswer",
    "NotFound",
    "NotSucceeded",
    "Receipt",
    "Retry",
    "StepError",
    "Submission",
    "SubmissionRefused",
    "WriteRefused",
]

#: Where each name is. It is loaded when it is first used: a producer needs no handlers, a handler no client, and the
#: command line must come to life at once.
_HOMES = {
    "core.aggregate": ("DELETE",),
    "core.retry": ("Backoff", "FailureClass", "Retry"),
    "effects.errors": (
        "AttemptEnded",
        "BadStep",
        "Deadlock",
        "EffectBlocked",
        "EffectBusy",
        "EffectConflict",
        "EffectRejected",
        "InDoubt",
        "LeaseUnavailable",
        "NoAnswer",
        "StepError",
        "WriteRefused",
    ),
    "runtime.app": ("App", "AppError"),
    "runtime.blocking": ("BlockingContext",),
    "runtime.client": ("Client", "NotFound", "NotSucceeded", "Receipt", "Submission", "SubmissionRefused"),
    "runtime.context": ("Aggregate", "Context"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("rewindq")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"rewindq.engine.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
