"""What the end of a handler means, the same in every mode: its result's bytes, or its failure in words."""

from __future__ import annotations

from pydantic import BaseModel

from ..core import decide as d
from ..core import values
from ..core.retry import FailureClass
from ..core.secrets import NAMED_MIN, scrub, scrub_text
from ..effects.errors import StepError
from ..effects.marked import dumped
from ..ports.blobs import BlobMissing
from .app import App
from .failures import explain
from .kept import describe, full_name, keep, retry_after_of


class ResultRefused(Exception):
    """What a handler returned cannot be kept; its effects stand."""


def encode_result(result: object, secrets: list[str]) -> bytes | None:
    """A handler's result in canonical form, without what its model marks secret and the payload's secrets.

    Raises values.ValueRefused.
    """
    if result is None:
        return None
    data = values.encode(dumped(result) if isinstance(result, BaseModel) else result)
    return scrub(data, [secret for secret in secrets if len(secret) >= NAMED_MIN], texts_only=True)


def failure_of(app: App, error: BaseException, secrets: list[str], duration: int) -> d.AttemptFailure:
    """How an attempt failed, from what its handler raised. `duration` milliseconds."""
    terminal = isinstance(error, StepError) and error.terminal
    kind, rule = explain(app, error)
    if isinstance(error, BlobMissing | ResultRefused):
        terminal, kind, rule = True, FailureClass.VALIDATION, "type " + type(error).__qualname__
    if terminal:
        rule += "; never retried"
    text = describe(error)
    return d.AttemptFailure(
        kind,
        scrub_text(text or type(error).__qualname__, secrets),
        getattr(error, "step", None),
        exception_name(error),
        duration,
        retry_after_of(error),
        terminal,
        keep(error, rule, secrets),
    )


def exception_name(error: BaseException) -> str:
    """The module and name of an exception's class; an effect's error goes by what its function raised."""
    cause = error.__cause__ if isinstance(error, StepError) and error.__cause__ is not None else error
    return full_name(cause)
