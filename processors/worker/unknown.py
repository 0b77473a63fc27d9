"""What waits for a worker that knows its type: which jobs and submissions, and since when this worker knows of them.

An old worker in a rolling deploy, or one of another app, must not decide about a type it has no handler for: it knows
neither its key rules nor what a failure of it means. So a submission of it is held as it came, a job of it stays in the
queue, and both wait for the partition's next owner. After a time, a person is asked.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rewindq.engine.core import events as e
from rewindq.engine.runtime.app import App

from .owner import About, Owner


class Waiting(NamedTuple):
    """A job, or a held submission, and the monotonic time since which it is known to wait here."""

    since: float
    job_id: str
    type: str


class UnknownTypes:
    """Of one worker: what waits on its partitions for a type that its app lacks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._held: dict[int, set[str]] = {}
        #: Found since the last look at the clock.
        self._new: dict[int, list[tuple[str, str]]] = {}
        self._waiting: dict[int, deque[Waiting]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._new or self._waiting)

    def known(self) -> str:
        """The types that this worker knows, for people."""
        return ", ".join(sorted(self._app.types)) or "none"

    def holds(self, partition: int, job_id: str) -> bool:
        """Whether a submission with this id is held."""
        held = self._held.get(partition)
        return held is not None and job_id in held

    def count(self) -> int:
        """How many submissions are held."""
        return sum(map(len, self._held.values()))

    def held(self, partition: int, job_id: str, job_type: str) -> None:
        """A submission is held from now on."""
        self._held.setdefault(partition, set()).add(job_id)
        self.found(partition, job_id, job_type)

    def found(self, partition: int, job_id: str, job_type: str) -> None:
        """A job or submission of an unknown type waits on a partition; it is told again when it is overdue."""
        self._new.setdefault(partition, []).append((job_id, job_type))

    def released(self, partition: int, job_id: str) -> None:
        """A submission is not held any more."""
        self._held.get(partition, set()).discard(job_id)

    def overdue(self, owner: Owner, now: float, wait: float) -> list[Waiting]:
        """What has waited for `wait` seconds of this worker's monotonic time; told once. New ones' types are noted."""
        partition = owner.partition
        if partition in self._new:
            new = self._new.pop(partition)
            self._waiting.setdefault(partition, deque()).extend(Waiting(now, *one) for one in new)
            for job_type in {job_type for _, job_type in new}:
                reason = f"waits for a capable worker: its partition's has no {job_type!r}, it has: {self.known()}"
                note(owner, job_type, reason)
        waiting = self._waiting.get(partition)
        late: list[Waiting] = []
        while waiting and waiting[0].since + wait <= now:
            late.append(waiting.popleft())
        if not waiting:
            self._waiting.pop(partition, None)
        return late

    def drop(self, partition: int) -> None:
        """The partition passed on."""
        for of in (self._held, self._new, self._waiting):
            of.pop(partition, None)


def note(owner: Owner, job_type: str, reason: str | None) -> None:
    """Records why jobs of a type wait on a partition, if that is not known already."""
    known = owner.states.note(job_type)
    if (None if known is None else known.reason) != reason:
        owner.append(About(None, 0, job_type.encode()), (e.Event(e.TypeNoted(job_type, reason)),))
