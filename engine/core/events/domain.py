"""Domain events: did the business logic behave?"""

from __future__ import annotations

from .base import DomainBody


class StepStarted(DomainBody, frozen=True):
    """A step that takes time began."""

    kind: str


class StepCompleted(DomainBody, frozen=True):
    """A step that only reads: `load` (the event's resource and version, `position` of that version) or `now`."""

    kind: str
    position: int | None = None
    value: bytes | None = None


class DecisionRecorded(DomainBody, frozen=True):
    """Why the code took this branch."""

    value: bytes
    because: bytes | None = None


class CacheRead(DomainBody, frozen=True):
    """A read of a registered cache source: what it held, which version, how old."""

    source: str
    key: str
    hit: bool
    version: str | None
    age: int | None
    value: bytes | None


class EffectStarted(DomainBody, frozen=True):
    """Durable before the call: from here to its outcome, the call may have happened.

    `compensation` is what undoes it, with the effect's arguments.
    """

    key: str
    request_digest: str
    request: bytes | None
    timeout: int | None
    idempotent: bool
    compensation: bytes | None = None
    compensation_ref: str | None = None


class EffectSucceeded(DomainBody, frozen=True):
    """The call was done. `evidence`: call, lookup (`on_doubt`) or operator."""

    key: str
    answer: bytes | None
    answer_ref: str | None
    duration: int
    evidence: str


class EffectFailed(DomainBody, frozen=True):
    """The call was surely not done. `error` is what is kept of the exception (`runtime/kept.py`)."""

    key: str
    failure_class: str
    reason: str
    exception: str | None
    duration: int
    error: bytes | None = None


class EffectInDoubt(DomainBody, frozen=True):
    """The call may have been done: a time-out, a broken connection, or a worker lost in the middle."""

    key: str
    reason: str
    duration: int | None = None


class EffectSkipped(DomainBody, frozen=True):
    """The call was done before under this key: its recorded answer is returned and nothing is called."""

    key: str
    answer: bytes | None
    answer_ref: str | None
    position: int


class IdempotencyConflict(DomainBody, frozen=True):
    """The key was used with another request: refused before any call."""

    key: str
    expected_digest: str
    got_digest: str


class IdempotencyKeyUnstable(DomainBody, frozen=True):
    """An earlier attempt gave the same step another key."""

    key: str
    expected_key: str


class StateChanged(DomainBody, frozen=True):
    """An aggregate's next version: `changes` maps fields to values, `deleted` lists removed fields."""

    parent: int
    changes: bytes
    deleted: tuple[str, ...] = ()


class WriteConflict(DomainBody, frozen=True):
    """The version that was read is no longer current; nothing was written."""

    expected: int
    current: int
    writer: str | None


class WriteFenced(DomainBody, frozen=True):
    """The writer's fencing token is older than the newest granted; nothing was written."""

    token: int
    current: int
    expected: int


class NoteRecorded(DomainBody, frozen=True):
    """What the handler wanted to leave in the trace."""

    fields: bytes


class ChildEnqueued(DomainBody, frozen=True):
    """A child job, appended to the jobs topic in the same transaction."""

    child_id: str
    type: str
    digest: str


class DivergenceFound(DomainBody, frozen=True):
    """In a branch: where the code left the recording, with what was expected and what was got."""

    kind: str
    expected: bytes | None
    got: bytes | None


class RemoteRequested(DomainBody, frozen=True):
    """A step asked the home partition of the event's resource; the request went to it in the same transaction."""

    request_id: str
    op: str
    home: int
    changes: bytes | None = None
    deleted: tuple[str, ...] = ()
    expected: int | None = None


class RemoteAnswered(DomainBody, frozen=True):
    """What the home partition answered, `position` there being what it decided or what was read.

    `waited` is until the reply came, `home_waited` what a lease was waited for at its home; milliseconds.
    """

    request_id: str
    op: str
    home: int
    outcome: str
    waited: int
    home_waited: int | None = None
    reason: str | None = None
    value: bytes | None = None
    value_ref: str | None = None
    position: str | None = None
