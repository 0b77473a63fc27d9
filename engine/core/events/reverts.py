"""Reverts: an operator takes back what a job changed."""

from __future__ import annotations

from .base import Body, DomainBody
from .inputs import Command


class RevertCommand(Command, frozen=True):
    """An operator takes back what the envelope's job, or one attempt of it, changed in the event's resource."""

    attempt: int | None = None


class StateReverted(DomainBody, frozen=True):
    """An aggregate's next version, as `StateChanged`: it brings back what fields held before the job changed them.

    `attempt` is set where the changes of one attempt alone were taken back.
    """

    parent: int
    changes: bytes
    deleted: tuple[str, ...]
    reason: str
    actor: str
    command_id: str
    attempt: int | None = None


class RevertDecided(Body, frozen=True):
    """What became of a revert of the event's resource: the next `versions` versions are its own.

    `refused` tells the fields left alone, and who has written them since; `refused_total` is how many they are, the
    list being bounded. `refusal` is set where the revert as a whole was refused.
    """

    reason: str
    actor: str
    command_id: str
    attempt: int | None
    versions: int
    refused: bytes
    refused_total: int
    refusal: str | None = None
