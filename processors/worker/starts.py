"""Starting what waits: partition by partition in turn, while there is room."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from .attempts import Attempts
from .owner import Owner
from .run import Run


class Starts:
    """Decides the next attempts of a worker with room for `concurrency`; `take` has those to be made durable next."""

    def __init__(self, attempts: Attempts, owners: Mapping[int, Owner], concurrency: int) -> None:
        self._attempts = attempts
        self._owners = owners
        self._concurrency = concurrency
        self._order: deque[int] = deque()
        self._started: list[Run] = []

    def adopt(self, partition: int) -> None:
        """A partition is owned now: it takes its turns."""
        self._order.append(partition)

    def drop(self, owner: Owner) -> None:
        """A partition has passed on: what was to start on it does not."""
        self._order.remove(owner.partition)
        self._started = [run for run in self._started if run.owner is not owner]

    def fill(self, closed: Collection[int]) -> None:
        """Starts waiting jobs of all partitions but the `closed` ones."""
        attempts = self._attempts
        lone = attempts.alone.turn()
        if lone is not None:
            self._add(attempts.start(*lone))
        room = attempts.alone.room(self._concurrency)
        empty = 0
        while room > 0 and empty < len(self._order):
            partition = self._order[0]
            self._order.rotate(-1)
            entry = None
            if partition not in closed:
                entry = attempts.queues[partition].pop(attempts.limits.full_types(attempts.by_type))
            if entry is None:
                empty += 1
                continue
            empty = 0
            self._add(attempts.start(self._owners[partition], entry))
            room = attempts.alone.room(self._concurrency)

    def _add(self, run: Run | None) -> None:
        if run is not None:
            self._started.append(run)

    def take(self) -> list[Run]:
        """The attempts that were started since the last call."""
        started, self._started = self._started, []
        return started
