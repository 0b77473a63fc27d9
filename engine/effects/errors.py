"""What a handler's calls may raise. Each says what happened and what the attempt's class of failure is."""

from __future__ import annotations

from typing import Self

from ..core.retry import FailureClass


class StepError(Exception):
    """Base of what `ctx` raises into a handler. `failure_class` is how the attempt ends when it is not caught."""

    failure_class = FailureClass.UNKNOWN
    terminal = False

    def __init__(self, message: str, *, step: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.retry_after = retry_after


class WriteRefused(StepError):
    """`ctx.save` found another version than expected, or the fencing token is stale; nothing was written."""

    failure_class = FailureClass.CONCURRENCY

    @classmethod
    def found(cls, key: str, current: int | None, expected: int, reason: str | None, step: str) -> Self:
        """With the message that all modes give: which version was found, which was expected, and why."""
        return cls(f"{key} is at version {current}, expected {expected}: {reason}", step=step)


class LeaseUnavailable(StepError):
    """The resource was not free within the wait, or the lease was lost."""

    failure_class = FailureClass.CONCURRENCY

    @classmethod
    def held(cls, resource: str, holder: str, waited_ms: int, step: str) -> Self:
        """With the message that all modes give of a resource at home with the job."""
        return cls(f"{resource} is held by {holder}; waited {waited_ms / 1000:g} s", step=step)

    @classmethod
    def elsewhere(cls, resource: str, reason: str | None, waited_ms: int | None, step: str) -> Self:
        """With the message that all modes give of a resource at home on another partition."""
        return cls(f"{resource} is not to be had: {reason}; waited {(waited_ms or 0) / 1000:g} s", step=step)


class Deadlock(LeaseUnavailable):
    """The job and others wait for each other, and this request gives way. Says who holds and waits for what."""


class NoAnswer(StepError):
    """The home partition of a resource did not answer in time, or refused. What was asked of it may be done or not."""

    failure_class = FailureClass.TRANSIENT


class EffectBusy(StepError):
    """Another job makes the call with this key at this moment."""

    failure_class = FailureClass.CONCURRENCY


class EffectConflict(StepError):
    """The key was used with other content."""

    failure_class = FailureClass.VALIDATION
    terminal = True


class InDoubt(StepError):
    """A call may have been done and nobody knows. Raise it in an effect's function when you cannot know."""

    failure_class = FailureClass.IN_DOUBT


class Unresolved(InDoubt):
    """In doubt, and neither `on_doubt` nor `idempotent=True` can resolve it: a person has to look."""

    terminal = True


class EffectRejected(StepError):
    """The effect's function raised: the call was not done. The original exception is the cause.

    `trace` is the end of its traceback as it was recorded: the same in a replay, whose own tracebacks are others.
    """

    trace: str = ""


class EffectBlocked(StepError):
    """This mode may not touch the outside world, and neither a recorded answer nor a stub was there."""

    failure_class = FailureClass.VALIDATION
    terminal = True


class BadStep(StepError):
    """`ctx` was used wrongly: a blank key, a value that cannot be recorded, a name with a NUL."""

    failure_class = FailureClass.VALIDATION
    terminal = True


class AttemptEnded(BaseException):
    """The attempt is over (timed out, cancelled, handed back): nothing it still asks for is done.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """


class StepLost(StepError):
    """The handler's attempt was ended from inside, or a lease it relied on was lost."""

    failure_class = FailureClass.CONCURRENCY


class ThreadBusy(StepError):
    """The thread of an earlier attempt of this job, which this worker gave back, has not ended."""

    failure_class = FailureClass.TIMEOUT
    terminal = True
