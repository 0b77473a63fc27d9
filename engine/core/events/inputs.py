"""Inputs: what producers and operators append."""

from __future__ import annotations

from typing import ClassVar

from .base import Body


class JobSubmitted(Body, frozen=True):
    """A producer asks for a job. `key` is set when the producer chose the partition key itself."""

    topic: ClassVar[str] = "jobs"
    type: str
    payload: bytes | None
    payload_ref: str | None
    digest: str
    key: str | None = None
    priority: int = 0
    due: int | None = None
    parent: str | None = None


class Command(Body, frozen=True):
    """Base of operators' commands: who gives it and why; its id is the same however often it is read."""

    topic: ClassVar[str] = "commands"
    command_id: str
    reason: str
    actor: str


class CancelCommand(Command, frozen=True):
    """An operator asks to cancel the envelope's job. `relayed`: by a partition that had not seen the job."""

    relayed: bool = False


class RetryCommand(Command, frozen=True):
    """An operator sends a job of the investigation queue back as a new attempt."""


#: Stands for the offset of a place that a group has committed nothing for.
NOTHING_COMMITTED = -1


class RewindCommand(Command, frozen=True):
    """An operator set a processor group's offset on this partition; recorded so that the trace shows it."""

    group: str
    input_topic: str
    from_offset: int
    to_offset: int


class QuarantineCommand(Command, frozen=True):
    """An operator holds a job type: this partition starts no attempt of it until the quarantine is lifted."""

    type: str


class LiftCommand(Command, frozen=True):
    """An operator lifts a job type's quarantine on this partition."""

    type: str


class ResolveCommand(Command, frozen=True):
    """An operator tells what became of an effect in doubt: `succeeded`, with its answer, or `failed`: not done."""

    key: str
    outcome: str
    answer: bytes | None
    answer_ref: str | None


class ResourceRequest(Body, frozen=True):
    """A job asks the home partition of the event's resource: `op` is load, save, lease, renew or release.

    `ttl` and `wait` are durations of a lease; the record's epoch is that of the asking partition's owner.
    """

    topic: ClassVar[str] = "commands"
    request_id: str
    op: str
    from_partition: int
    changes: bytes | None = None
    deleted: tuple[str, ...] = ()
    expected: int | None = None
    ttl: int | None = None
    wait: int | None = None


class ResourceReply(Body, frozen=True):
    """The home partition's answer: `outcome` is done, conflict, fenced, refused or expired.

    `waited` is how long a lease was waited for there, milliseconds.
    """

    topic: ClassVar[str] = "commands"
    request_id: str
    op: str
    outcome: str
    reason: str | None = None
    value: bytes | None = None
    value_ref: str | None = None
    position: str | None = None
    waited: int | None = None
