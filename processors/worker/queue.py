"""Which waiting job runs next: by priority, which grows as it waits, then age; one at a time for a resource. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

#: A waiting job gains one step of priority in so many seconds, so that no stream of more urgent jobs starves it.
AGE_STEP = 10.0


def age(monotonic: float) -> int:
    """The step of time at which a job begins to wait."""
    return int(monotonic // AGE_STEP)


class Ready(NamedTuple):
    """A waiting job: sorts by priority with what it gained by waiting, then by the order in which jobs were accepted.

    All jobs gain alike, so the order of two never changes: `rank` is the step of time at which the job began to wait,
    less its priority, and no job is ever moved because time passes.
    """

    rank: int
    accepted_seq: int
    job_id: str
    type: str
    resource: str | None
    group: str | None = None
    limit: int = 1


def ready(
    priority: int,
    accepted_seq: int,
    job_id: str,
    job_type: str,
    resource: str | None,
    group: str | None = None,
    limit: int = 1,
    since: int = 0,
) -> Ready:
    """A queue entry of a job that waits since the step of time `since` (`age`).

    At most `limit` jobs run under one `group` key at once.
    """
    return Ready(since - priority, accepted_seq, job_id, job_type, resource, group, limit)


class ReadyQueue:
    """The waiting jobs of one partition, in memory.

    A job whose resource or type is busy steps aside until that one is free, so it blocks nobody behind it. So does one
    that waits behind a failed job of its resource, or is of a type that is not among `known` (None: all are): it is
    `stuck`, nothing that runs will set it free. `on_unknown` is told of each job of an unknown type.
    """

    def __init__(
        self, known: Container[str] | None = None, on_unknown: Callable[[Ready], None] = lambda entry: None
    ) -> None:
        self._known = known
        self._on_unknown = on_unknown
        self._heap: list[Ready] = []
        self._resource_aside: dict[str, list[Ready]] = {}
        self._type_aside: dict[str, list[Ready]] = {}
        self._group_aside: dict[str, list[Ready]] = {}
        self._groups: Counter[str] = Counter()
        self._members: set[str] = set()
        self._holders: dict[str, str] = {}
        #: Resource -> the acceptance of the first failed job that blocks it.
        self._blocks: dict[str, int] = {}
        self._blocked: dict[str, list[Ready]] = {}
        self._behind: set[str] = set()
        self._unknown: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    @property
    def stuck(self) -> int:
        """How many of them wait for what no running job will do."""
        return len(self._behind) + len(self._unknown)

    @property
    def blocked(self) -> int:
        """How many of them wait behind a failed job."""
        return len(self._behind)

    @property
    def unknown(self) -> int:
        """How many of them are of an unknown type."""
        return len(self._unknown)

    def aside(self, job_type: str) -> int:
        """How many jobs stepped aside because their type is at a limit."""
        return len(self._type_aside.get(job_type, ()))

    def is_unknown(self, job_id: str) -> bool:
        """Whether a job waits for a worker that knows its type."""
        return job_id in self._unknown

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
        if self._type_aside:
            for job_type in self._type_aside.keys() - full_types:
                _bring_back(self._type_aside, job_type, self._heap)
        while self._heap:
            entry = heappop(self._heap)
            if entry.job_id in self._members and not self._step_aside(entry, full_types):
                if entry.resource is not None:
                    self._holders[entry.resource] = entry.job_id
                if entry.group is not None:
                    self._groups[entry.group] += 1
                self._members.discard(entry.job_id)
                return entry
            # It does not use what is free of its resource and type: the next one that waits for that may.
            if entry.resource is not None and entry.resource not in self._holders:
                _bring_back(self._resource_aside, entry.resource, self._heap)
            if entry.type not in full_types:
                _bring_back(self._type_aside, entry.type, self._heap)
            if entry.group is not None and self._groups[entry.group] < entry.limit:
                _bring_back(self._group_aside, entry.group, self._heap)
        return None

    def _step_aside(self, entry: Ready, full_types: frozenset[str] | set[str]) -> bool:
        resource = entry.resource
        if self._known is not None and entry.type not in self._known:
            self._unknown[entry.job_id] = entry.type
            self._on_unknown(entry)
            return True
        if resource is not None:
            if self._blocks and entry.accepted_seq > self._blocks.get(resource, entry.accepted_seq):
                self._behind.add(entry.job_id)
                heappush(self._blocked.setdefault(resource, []), entry)
                return True
            if resource in self._holders:
                heappush(self._resource_aside.setdefault(resource, []), entry)
                return True
        if entry.group is not None and self._groups[entry.group] >= entry.limit:
            heappush(self._group_aside.setdefault(entry.group, []), entry)
            return True
        if entry.type in full_types:
            heappush(self._type_aside.setdefault(entry.type, []), entry)
            return True
        return False

    def remove(self, job_id: str) -> None:
        """Forgets a waiting job (cancelled)."""
        self._members.discard(job_id)
        self._behind.discard(job_id)
        self._unknown.pop(job_id, None)

    # --- resources ---

    def withdraw(self, job_type: str) -> None:
        """Forgets all waiting jobs of a type (quarantined)."""
        asides = (self._resource_aside, self._type_aside, self._group_aside, self._blocked)
        found = [self._heap, *(entries for aside in asides for entries in aside.values())]
        gone = {entry.job_id for entries in found for entry in entries if entry.type == job_type}
        gone.update(job_id for job_id, name in self._unknown.items() if name == job_type)
        for job_id in gone:
            self.remove(job_id)

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

    def leave(self, group: str) -> None:
        """A job under a group's key is done: the first that stepped aside for it is back in the order."""
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]
        _bring_back(self._group_aside, group, self._heap)

    def blocks(self, resource: str) -> bool:
        """Whether a failed job blocks a resource."""
        return resource in self._blocks

    def block(self, resource: str, first: int | None) -> None:
        """Jobs of a resource that were accepted after `first` wait; None: no longer."""
        if first is None:
            self._blocks.pop(resource, None)
        else:
            self._blocks[resource] = first
        waiting = self._blocked.pop(resource, None)
        if waiting is not None:
            self._unblock(resource, first, waiting)

    def _unblock(self, resource: str, first: int | None, waiting: list[Ready]) -> None:
        """Those that may run queue up for the resource as if it were busy; the first of them is in the order."""
        still = [entry for entry in waiting if first is not None and entry.accepted_seq > first]
        if still:
            heapify(still)
            self._blocked[resource] = still
        freed = [entry for entry in waiting if first is None or entry.accepted_seq <= first]
        self._behind.difference_update(entry.job_id for entry in freed)
        if freed:
            aside = self._resource_aside.setdefault(resource, [])
            aside.extend(freed)
            heapify(aside)
            if resource not in self._holders:
                _bring_back(self._resource_aside, resource, self._heap)


def _bring_back(aside: dict[str, list[Ready]], place: str, heap: list[Ready]) -> None:
    waiting = aside.get(place)
    if waiting:
        heappush(heap, heappop(waiting))
        if not waiting:
            del aside[place]
