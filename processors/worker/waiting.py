"""Who waits for which resource: attempts of this partition and requests of others, in one fair order each."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from .queue import ReadyQueue


class Place(NamedTuple):
    """A resource on its home partition."""

    partition: int
    resource: str


class Waiter(Protocol):
    """Somebody who waits for a lease."""

    job_id: str

    def alive(self) -> bool:
        """Whether it still waits."""
        ...

    def grant(self) -> None:
        """The resource is held for it from now on."""
        ...


class WaitQueues:
    """The waiting lease requests of a worker's partitions. A lease goes before the next job of the resource."""

    def __init__(self, queues: dict[int, ReadyQueue]) -> None:
        self._queues = queues
        self._waiting: dict[Place, deque[Waiter]] = {}

    def holder(self, place: Place) -> str | None:
        """The job that holds a resource now."""
        return self._queues[place.partition].holder(place.resource)

    def hold(self, place: Place, job_id: str) -> None:
        """Marks a resource as held."""
        self._queues[place.partition].hold(place.resource, job_id)

    def join(self, place: Place, waiter: Waiter) -> None:
        """Waits behind those who wait already."""
        self._waiting.setdefault(place, deque()).append(waiter)

    def leave(self, place: Place, waiter: Waiter) -> None:
        """Waits no longer."""
        waiting = self._waiting.get(place)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)

    def freed(self, place: Place) -> None:
        """A resource is free: the longest waiting lease request gets it, else the next job of it."""
        waiting = self._waiting.get(place)
        while waiting:
            waiter = waiting.popleft()
            if waiter.alive():
                self.hold(place, waiter.job_id)
                waiter.grant()
                return
        self._waiting.pop(place, None)
        queue = self._queues.get(place.partition)
        if queue is not None:
            queue.free(place.resource)

    def drop_partition(self, partition: int) -> None:
        """Forgets all who wait on a partition that passed on."""
        for place in [p for p in self._waiting if p.partition == partition]:
            del self._waiting[place]
