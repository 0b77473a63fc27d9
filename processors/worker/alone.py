"""A job that one more lost worker would park runs alone in its process, so that it is parked for its own crash only.

Who dies takes along all that runs beside it, and nobody can tell afterwards whose fault it was. So a loss is counted
for each of them, and whoever has one loss left before the limit waits until its process is empty; nothing else starts
there until it has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rewindq.engine.core import state as s

from .limits import Limits
from .owner import Owner
from .queue import Ready
from .run import Run
from .waiting import Place, WaitQueues

_STARTABLE = frozenset({s.WAITING, s.DELAYED, s.RETRYING})


class Candidate(NamedTuple):
    """A job that was taken from its queue and waits for its process to be empty; it has its resource already."""

    owner: Owner
    entry: Ready


def is_suspect(lost: int, max_lost: int) -> bool:
    """Whether one more loss parks a job that was lost before."""
    return 0 < lost >= max_lost - 1


class Alone:
    """Who runs alone in a worker. Used from its event loop."""

    def __init__(self, running: dict[str, Run], waits: WaitQueues, limits: Limits) -> None:
        self._running = running
        self._waits = waits
        self._limits = limits
        self._candidate: Candidate | None = None
        self._lone: str | None = None

    def room(self, concurrency: int) -> int:
        """How many attempts may start now beside those that run."""
        if self._candidate is not None or self._lone in self._running:
            return 0
        return concurrency - len(self._running)

    def must_wait(self, owner: Owner, entry: Ready, lost: int, max_lost: int) -> bool:
        """Whether a job that is about to start waits until nothing else runs; else it starts, alone where it has to."""
        if not is_suspect(lost, max_lost):
            return False
        if self._running:
            self._candidate = Candidate(owner, entry)
            return True
        self._lone = entry.job_id
        return False

    def waits(self, job_id: str) -> bool:
        """Whether a job waits here."""
        return self._candidate is not None and self._candidate.entry.job_id == job_id

    def turn(self) -> Candidate | None:
        """The job that waits, once its process is empty. One that must not start any more is let go."""
        candidate = self._candidate
        if candidate is None:
            return None
        owner, entry = candidate
        job = owner.states.job(entry.job_id)
        if job is None or job.status not in _STARTABLE or entry.type in owner.states.quarantined:
            self._let_go(candidate)
            return None
        if self._running:
            return None
        self._candidate = None
        return candidate

    def _let_go(self, candidate: Candidate) -> None:
        self._candidate = None
        owner, entry = candidate
        head = owner.states.head(entry.job_id)
        if head is not None:
            self._limits.leave(owner.partition, head)
        if entry.resource is not None:
            self._waits.freed(Place(owner.partition, entry.resource))

    def drop(self, partitions: Collection[int]) -> None:
        """Forgets what waits on partitions that pass on: their next owners find it."""
        if self._candidate is not None and self._candidate.owner.partition in partitions:
            self._candidate = None
