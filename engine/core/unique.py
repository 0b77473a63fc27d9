"""Unique keys of a job type: who may have one. Pure."""

from __future__ import annotations

from typing import NamedTuple

from . import events as e
from . import state as s


class Unique(NamedTuple):
    """A job's unique key, how long it is held at most in microseconds, and who holds it now."""

    job_id: str
    key: str
    window: int | None
    mark: s.UniqueMark | None

    def holder(self, now: int) -> str | None:
        """The other job that keeps this one out."""
        mark = self.mark
        return mark.job_id if mark is not None and mark.job_id != self.job_id and mark.holds(now) else None

    def taken(self, now: int) -> e.Event:
        """The key is the job's from now on."""
        return e.Event(e.UniqueTaken(self.key, None if self.window is None else now + self.window))
