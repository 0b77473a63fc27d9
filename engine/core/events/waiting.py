"""What makes jobs wait, beyond time and room: recorded, so that the next owner and every reader know it, too."""

from __future__ import annotations

from .base import Body


class KeyBlocked(Body, frozen=True):
    """The failed job keeps later jobs of its resource waiting until it succeeds or is cancelled."""

    reason: str


class SubmissionHeld(Body, frozen=True):
    """Nobody here knows the submission's type, so not its key rules either: kept as it was for who does."""

    type: str
    digest: str
    original: bytes
    source_offset: int


class SubmissionReleased(Body, frozen=True):
    """A held submission is decided; what follows says how."""

    reason: str


class TypeNoted(Body, frozen=True):
    """Why the partition's jobs of a type wait, whatever the place they have; None: for no such reason any more."""

    type: str
    reason: str | None


class UniqueTaken(Body, frozen=True):
    """The job holds its type's unique key until it ends in any way, or until `until`, whatever comes first."""

    key: str
    until: int | None


class UniqueDuplicated(Body, frozen=True):
    """Terminal: the job is a duplicate of `first`, which holds the unique key."""

    key: str
    first: str


class EntryPosted(Body, frozen=True):
    """The investigation topic has the entry of the job that the event of this number parked."""

    entry: int
