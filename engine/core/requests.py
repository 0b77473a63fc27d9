"""The words of requests between partitions: what a resource's home is asked (`op`), what it answers (`outcome`)."""

from __future__ import annotations

LOAD, SAVE, LEASE, RENEW, RELEASE = "load", "save", "lease", "renew", "release"
#: Asks for nothing: it tells, by its epoch, that the asking partition has a new owner.
OWNED = "owned"
DONE, CONFLICT, FENCED, REFUSED, EXPIRED = "done", "conflict", "fenced", "refused", "expired"
#: About global keys, beside the words of effects: two answers, and what a claim comes to under which nothing was begun.
CLAIMED, BUSY, FREE = "claimed", "busy", "free"


def stranger(partition: int, partitions: int) -> str | None:
    """Why a request cannot come from where it says; None where it can."""
    return None if 0 <= partition < partitions else f"it comes from partition {partition}, and there are {partitions}"


def replaced(partition: int, epoch: int, known: int) -> str | None:
    """Why a request is refused whose owner was replaced; None where `epoch` is the newest that is `known`, or newer."""
    if epoch >= known:
        return None
    return f"it comes from epoch {epoch} of partition {partition}, which has epoch {known} now"
