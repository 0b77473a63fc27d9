"""Which waiting job runs next: by priority, then age, one job at a time for each resource. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple


class Ready(NamedTuple):
    """A waiting job: sorts by priority (higher first), then by the order in which jobs were accepted."""

    rank: int
    accepted_seq: int
    job_id: str
    type: str
    resource: str | None


def ready(priority: int, accepted_seq: int, job_id: str, job_type: str, resource: str | None) -> Ready:
    """A queue entry."""
    return Ready(-priority, accepted_seq, job_id, job_type, resource)


class ReadyQueue:
    """The waiting jobs of one partition, in memory.

    A job whose resource or type is busy steps aside until that one is free, so it blocks nobody behind it.
    """

    def __init__(self) -> None:
        self._heap: list[Ready] = []
        self._aside: dict[str, list[Ready]] = {}
        self._members: set[str] = set()
        self._holders: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def push(self, entry: Ready) -> None:
        """Adds a waiting job; one that is here already is left in its place."""
        if entry.job_id not in self._members:
            self._members.add(entry.job_id)
            heappush(self._heap, entry)

    def extend(self, entries: Iterable[Ready]) -> None:
        """Adds several."""
        for entry in entries:
            self.push(entry)

    def pop(self, full_types: frozenset[str] | set[str] = frozenset()) -> Ready | None:
        """The next job that may run, its resource taken; None when there is none now.

        `full_types` are job types at their concurrency limit.
        """
        while self._heap:
            entry = heappop(self._heap)
            if entry.job_id not in self._members:
                if entry.resource is not None and entry.resource not in self._holders:
                    self._bring_back(f"resource {entry.resource}")
                continue
            if entry.resource is not None and entry.resource in self._holders:
                heappush(self._aside.setdefault(f"resource {entry.resource}", []), entry)
                continue
            if entry.type in full_types:
                heappush(self._aside.setdefault(f"type {entry.type}", []), entry)
                continue
            if entry.resource is not None:
                self._holders[entry.resource] = entry.job_id
            self._members.discard(entry.job_id)
            return entry
        return None

    def remove(self, job_id: str) -> None:
        """Forgets a waiting job (cancelled)."""
        self._members.discard(job_id)

    def holder(self, resource: str) -> str | None:
        """Who holds a resource now."""
        return self._holders.get(resource)

    def hold(self, resource: str, holder: str) -> None:
        """Marks a resource as held (a lease)."""
        self._holders[resource] = holder

    def free(self, resource: str) -> None:
        """A resource's holder is done: the first job that stepped aside for it is back in the order."""
        self._holders.pop(resource, None)
        self._bring_back(f"resource {resource}")

    def type_free(self, job_type: str) -> None:
        """A job of a type at its limit is done: the first that stepped aside is back in the order."""
        self._bring_back(f"type {job_type}")

    def _bring_back(self, place: str) -> None:
        waiting = self._aside.get(place)
        if waiting:
            heappush(self._heap, heappop(waiting))
            if not waiting:
                del self._aside[place]
