"""Rewindq: a replayable worker queue."""

from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.retry import Backoff, FailureClass, Retry
from rewindq.engine.effects.errors import InDoubt
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.context import Context

__all__ = ["DELETE", "App", "Backoff", "Context", "FailureClass", "InDoubt", "Retry"]
