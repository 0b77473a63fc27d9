"""Claims of global keys: who may make the call under one, decided by the key's home partition in log order."""

from __future__ import annotations

from typing import ClassVar

from .base import Body, DomainBody


class ClaimRequest(Body, frozen=True):
    """An attempt asks the home of a global key for the call under it; the record's epoch is its partition owner's.

    `resolves`: it can find out what became of a call in doubt. `wait`: how long it waits for another job's call.
    """

    topic: ClassVar[str] = "commands"
    request_id: str
    key: str
    request_digest: str
    from_partition: int
    resolves: bool
    wait: int


class ClaimReply(Body, frozen=True):
    """The home's answer: `outcome` is claimed, succeeded, conflict, in_doubt, busy or refused.

    `key` is the one to call under, `holder` the job that has or had the claim, `request_digest` its request's. With
    `reason`, a claim was granted of a call that may have been done.
    """

    topic: ClassVar[str] = "commands"
    request_id: str
    key: str
    outcome: str
    holder: str | None = None
    request_digest: str | None = None
    reason: str | None = None
    answer: bytes | None = None
    answer_ref: str | None = None
    position: str | None = None


class SettleRequest(Body, frozen=True):
    """What became of a claim: `outcome` is succeeded, failed, in_doubt, or free: no call was begun under it."""

    topic: ClassVar[str] = "commands"
    request_id: str
    key: str
    from_partition: int
    outcome: str
    reason: str | None = None
    answer: bytes | None = None
    answer_ref: str | None = None


class ClaimRequested(DomainBody, frozen=True):
    """A step asked the home of a global key for the call under it; the request went in the same transaction."""

    request_id: str
    key: str
    request_digest: str
    home: int


class ClaimAnswered(DomainBody, frozen=True):
    """What the home answered, as in `ClaimReply`; `position` is what it decided or found, `waited` milliseconds."""

    request_id: str
    key: str
    home: int
    outcome: str
    waited: int
    holder: str | None = None
    request_digest: str | None = None
    reason: str | None = None
    position: str | None = None


class KeyClaimed(Body, frozen=True):
    """At the home of a global key: the job alone may make the call until it is settled.

    `doubt` is why an earlier call may have been done: the job has to find out first, or to send it again.
    """

    request_id: str
    key: str
    request_digest: str
    from_partition: int
    doubt: str | None = None


class KeySettled(Body, frozen=True):
    """At the home of a global key: what became of the newest claim; `actor` and `command_id` where a person told it."""

    request_id: str
    key: str
    outcome: str
    reason: str | None = None
    answer: bytes | None = None
    answer_ref: str | None = None
    actor: str | None = None
    command_id: str | None = None
