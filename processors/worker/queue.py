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
        self._resource_aside: dict[str, list[Ready]] = {}
        self._type_aside: dict[str, list[Ready]] = {}
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
        for job_type in self._type_aside.keys() - full_types:
            _bring_back(self._type_aside, job_type, self._heap)
        while self._heap:
            entry = heappop(self._heap)
            if entry.job_id in self._members and not self._step_aside(entry, full_types):
                if entry.resource is not None:
                    self._holders[entry.resource] = entry.job_id
                self._members.discard(entry.job_id)
                return entry
            # It does not use what is free of its resource and type: the next one that waits for that may.
            if entry.resource is not None and entry.resource not in self._holders:
                _bring_back(self._resource_aside, entry.resource, self._heap)
            if entry.type not in full_types:
                _bring_back(self._type_aside, entry.type, self._heap)
        return None

    def _step_aside(self, entry: Ready, full_types: frozenset[str] | set[str]) -> bool:
        if entry.resource is not None and entry.resource in self._holders:
            heappush(self._resource_aside.setdefault(entry.resource, []), entry)
            return True
        if entry.type in full_types:
            heappush(self._type_aside.setdefault(entry.type, []), entry)
            return True
        return False

    def remove(self, job_id: str) -> None:
        """Forgets a waiting job (cancelled)."""
        self._members.discard(job_id)

    def withdraw(self, job_type: str) -> None:
        """Forgets all waiting jobs of a type (quarantined)."""
        for entries in (self._heap, *self._resource_aside.values(), *self._type_aside.values()):
            self._members.difference_update(entry.job_id for entry in entries if entry.type == job_type)

    def holder(self, resource: str) -> str | None:
        """Who holds a resource now."""
        return self._holders.get(resource)

    def hold(self, resource: str, holder: str) -> None:
        """Marks a resource as held (a lease)."""
        self._holders[resource] = holder

    def free(self, resource: str) -> None:
        """A resource's holder is done: the first job that stepped aside for it is back in the order."""
        self._holders.pop(resource, None)
        _bring_back(self._resource_aside, resource, self._heap)


def _bring_back(aside: dict[str, list[Ready]], place: str, heap: list[Ready]) -> None:
    waiting = aside.get(place)
    if waiting:
        heappush(heap, heappop(waiting))
        if not waiting:
            del aside[place]
