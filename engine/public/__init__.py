"""Rewindq: a replayable worker queue."""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.retry import Backoff, FailureClass, Retry
from rewindq.engine.effects.errors import (
    AttemptEnded,
    BadStep,
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
from rewindq.engine.runtime.context import Aggregate, Context

if TYPE_CHECKING:
    from rewindq.engine.runtime.client import Client, NotFound, NotSucceeded, Receipt, Submission, SubmissionRefused

__version__ = version("rewindq")

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

#: What only producers need: loaded when it is first used, since it takes as long to import as all the rest.
_CLIENT = frozenset({"Client", "NotFound", "NotSucceeded", "Receipt", "Submission", "SubmissionRefused"})


def __getattr__(name: str) -> Any:
    if name in _CLIENT:
        return getattr(importlib.import_module("rewindq.engine.runtime.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
