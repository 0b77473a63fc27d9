"""Operators' commands that were answered: under its id a command has one answer, however often it is given. Pure."""

from __future__ import annotations

from typing import Protocol

from . import events as e
from . import state as s

#: States of a command.
DONE = "done"
QUEUED = "queued"
KEPT = "kept"
REFUSED = "refused"

#: Events that answer a command about a job.
ANSWERS = frozenset(
    {e.CancelKept, e.CancelRequested, e.JobCancelled, e.RetryRequested, e.EffectResolved, e.CommandRefused}
)


class Commands(Protocol):
    """A partition's answered commands."""

    def of(self, job_id: str, command_id: str) -> s.Answer | None:
        """The answer to a command about a job, None when it was not given yet."""
        ...

    def note(self, job_id: str, command_id: str, answer: s.Answer) -> None:
        """Keeps a command's first answer."""
        ...


def answer_of(body: e.Body) -> s.Answer:
    """What an event answers to its command."""
    if isinstance(body, e.CommandRefused):
        return s.Answer(REFUSED, body.reason)
    return s.Answer(KEPT if isinstance(body, e.CancelKept) else DONE)
