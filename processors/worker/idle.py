"""Is there anything left to do?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rewindq.engine.core.state import ACTIVE
from rewindq.engine.ports.log import Log, TopicPartition

from .owner import Owner


class IdleWatch:
    """Whether nothing can run now or later on the owned partitions by itself, and nothing is left on the log.

    `stuck` tells how many of a partition's waiting jobs wait for a person or another worker.
    """

    def __init__(
        self,
        log: Log,
        owners: Mapping[int, Owner],
        stuck: Callable[[int], int],
        busy: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self._log = log
        self._owners = owners
        self._stuck = stuck
        self._busy = busy
        self._wake = wake
        self._idle = False
        self._asking: asyncio.Task[None] | None = None

    def look(self) -> bool:
        """What is known now. The log is asked beside; the worker is woken when it has answered."""
        if not self._nothing_here():
            self._idle = False
        elif self._asking is None and not self._idle:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._idle

    def may_be_idle(self) -> bool:
        """Whether nothing is left here and the log is not being asked."""
        return self._asking is None and self._nothing_here()

    async def _ask(self) -> None:
        places = {
            (topic, partition): offset
            for partition, owner in self._owners.items()
            for topic, offset in owner.inputs.items()
        }
        try:
            passed = await asyncio.get_running_loop().run_in_executor(None, read_to_end, self._log, places)
            self._idle = passed is not None and self._nothing_here()
            self._pass(places, passed or {})
        finally:
            self._asking = None
            self._wake()

    def _pass(self, asked: Mapping[TopicPartition, int], passed: Mapping[TopicPartition, int]) -> None:
        """Commits past markers: on a quiet partition, retention would else overtake an offset that points at one."""
        for (topic, partition), end in passed.items():
            owner = self._owners.get(partition)
            if owner is not None and owner.inputs[topic] == asked[topic, partition]:
                owner.read(topic, end)

    def _nothing_here(self) -> bool:
        if self._busy():
            return False
        for owner in self._owners.values():
            if owner.has_work:
                return False
            # Jobs under quarantine, and stuck ones, wait for others: there is nothing to be done about them here.
            held = owner.states.held() + self._stuck(owner.partition)
            if sum(owner.states.counts.get(status, 0) for status in ACTIVE) > held:
                return False
        return True


def read_to_end(log: Log, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int] | None:
    """The ends of those partitions where nothing but transaction markers stands at or behind these offsets.

    None when a readable record stands there.
    """
    behind = {place: offset for place, offset in positions.items() if offset < log.bounds(*place)[1]}
    if not behind:
        return {}
    ends = {place: log.bounds(*place)[1] for place in behind}
    reader = log.reader(behind)
    try:
        while any(reader.position(*place) < end for place, end in ends.items()):
            if reader.poll(1, 1.0):
                return None
    finally:
        reader.close()
    return ends
