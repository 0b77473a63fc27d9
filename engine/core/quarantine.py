"""Quarantines of job types: what an owner decides about a command, and what follows from the event. Pure."""

from __future__ import annotations

from . import events as e
from . import state as s
from .evolve import Moment

#: Command ids of a job type that are remembered, newest last: one that comes again changes nothing.
COMMANDS_MAX = 100


def decide_quarantine(known: s.Quarantine | None, command: e.QuarantineCommand | e.LiftCommand) -> tuple[e.Event, ...]:
    """The event of a command; nothing when it was carried out before.

    A further quarantine of a type that is held gives it the new reason. Lifting what is not held is recorded, too, so
    that a lift which comes again never ends a quarantine that was added behind it.
    """
    if known is not None and command.command_id in known.commands:
        return ()
    kind = e.QuarantineAdded if isinstance(command, e.QuarantineCommand) else e.QuarantineLifted
    return (e.Event(kind(command.type, command.reason, command.actor, command.command_id)),)


def evolve_quarantine(
    known: s.Quarantine | None, body: e.QuarantineAdded | e.QuarantineLifted, at: Moment
) -> s.Quarantine:
    """A job type's quarantine after one of its events. A quarantine that holds already keeps its begin."""
    commands = (*(known.commands if known is not None else ()), body.command_id)[-COMMANDS_MAX:]
    active = isinstance(body, e.QuarantineAdded)
    since = known.since if active and known is not None and known.active else at.timestamp
    return s.Quarantine(active, body.reason, body.actor, since, commands)


def held_text(quarantine: s.Quarantine) -> str:
    """Why a job of the type waits, for people."""
    return f"type quarantined: {quarantine.reason}"
