"""The memory log as the port knows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ...ports.log import Append, GroupState, LogUnavailable, Ownership, TopicPartition, TopicSpec
from .. import refusals
from ..fetching import PartitionReader
from ..membership import GroupMember
from .reading import MemorySource
from .seat import MemorySeat
from .state import Group, MemoryState, Partition


class MemoryProducer:
    """Appends records."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def append(self, records: Sequence[Append]) -> list[int]:
        """Appends all or none and returns their offsets in order."""
        self._state.faults.before_commit("producer", records)
        with self._state.changed:
            offsets = self._state.append(records)
            self._state.tell()
        self._state.faults.after_commit("producer", records)
        return offsets

    def close(self) -> None:
        """There is nothing to free."""


class MemoryLog:
    """A handle on a MemoryState."""

    def __init__(self, state: MemoryState | None = None, *, url: str = "memory:///") -> None:
        self.state = state if state is not None else MemoryState()
        self.url = url
        self._source = MemorySource(self.state)
        self._members: list[GroupMember] = []

    def identity(self) -> str:
        """The state's id."""
        return self.state.identity

    def now_us(self, topic: str) -> int:
        """The state's clock."""
        return self.state.now_us()

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing. Raises PartitionCountMismatch."""
        with self.state.changed:
            for spec in refusals.missing_topics(specs, self.topics()):
                self.state.made += 1
                made = [Partition(spec.name, p, self.state.made) for p in range(spec.partitions)]
                self.state.topics[spec.name] = made
                self.state.retention_ms[spec.name] = spec.retention_ms

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with their records; unknown names are passed over."""
        with self.state.changed:
            for name in names:
                for partition in self.state.topics.pop(name, []):
                    partition.deleted = True
            for group in self.state.groups.values():
                group.offsets = {key: offset for key, offset in group.offsets.items() if key[0] not in names}
            self.state.tell()

    def topics(self, prefix: str = "") -> dict[str, int]:
        """Names and partition counts of the topics whose name begins with `prefix`."""
        with self.state.changed:
            names = sorted(name for name in self.state.topics if name.startswith(prefix))
            return {name: len(self.state.topics[name]) for name in names}

    def retention_ms(self, topic: str) -> int | None:
        """None: this log removes nothing by itself."""
        self.bounds(topic, 0)
        return None

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """A number of each topic. Raises NoSuchTopic."""
        with self.state.changed:
            return {name: str(self.state.partition(name, 0).topic_id) for name in names}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """`(low, end)`. Raises NoSuchTopic."""
        with self.state.changed:
            one = self.state.partition(topic, partition)
            return one.low, one.end

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; `end` when there is none."""
        with self.state.changed:
            one = self.state.partition(topic, partition)
            return next((record.offset for record in one.records if record.timestamp_ms >= timestamp_ms), one.end)

    def reader(self, positions: Mapping[TopicPartition, int]) -> PartitionReader:
        """A reader that starts at these offsets. Raises NoSuchTopic; its `poll` raises OffsetOutOfRange."""
        return PartitionReader(self._source, positions)

    def producer(self) -> MemoryProducer:
        """A producer."""
        return MemoryProducer(self.state)

    def join(self, group: str, inputs: Sequence[str], ownership: Ownership, *, name: str) -> GroupMember:
        """Joins a consumer group. Raises NoSuchTopic, and PartitionCountMismatch between inputs."""
        partitions = refusals.input_partitions(self.topics(), inputs)
        seat = MemorySeat(self.state, group, name, partitions)
        member = GroupMember(seat, self._source, group, inputs, ownership)
        self._members = [one for one in self._members if not one.closed] + [member]
        return member

    def groups(self, prefix: str = "") -> list[GroupState]:
        """Groups whose name begins with `prefix`."""
        with self.state.changed:
            for group in self.state.groups.values():
                self.state.bury(group)
            return [
                GroupState(name, tuple(group.members), dict(sorted(group.offsets.items())))
                for name, group in sorted(self.state.groups.items())
                if name.startswith(prefix)
            ]

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        expected: Mapping[TopicPartition, int | None] | None = None,
        appends: Sequence[Append] = (),
    ) -> None:
        """Sets committed offsets of a group without members, and appends. Raises GroupActive, OffsetsMoved."""
        with self.state.changed:
            for topic, partition in offsets:
                self.state.partition(topic, partition)
            self._idle(group)
            refusals.check_expected(group, self.state.groups.get(group, Group()).offsets, expected)
            self.state.append(appends)
            self.state.groups.setdefault(group, Group()).offsets.update(offsets)
            self.state.tell()

    def delete_group(self, group: str) -> None:
        """Deletes a group without members; an unknown one is passed over. Raises GroupActive."""
        with self.state.changed:
            self._idle(group)
            self.state.groups.pop(group, None)

    def trim(self, now_ms: int) -> None:
        """Removes records past their topic's retention; `now_ms` is wall time."""
        with self.state.changed:
            for name, retention_ms in self.state.retention_ms.items():
                if retention_ms is not None:
                    for partition in self.state.topics.get(name, []):
                        partition.trim(now_ms - retention_ms)

    def close(self) -> None:
        """This handle's members leave their groups. The topics stay with the state."""
        for member in self._members:
            member.close()

    def _idle(self, name: str) -> None:
        group = self.state.groups.get(name, Group())
        self.state.bury(group)
        if group.members:
            raise refusals.active(name, list(group.members))


_named: dict[str, MemoryState] = {}
_naming = threading.Lock()


def open_memory(url: str) -> MemoryLog:
    """Opens `memory:///name`: all logs of that name in this process are one. Raises LogUnavailable."""
    name = url.removeprefix("memory:///")
    if not name or not url.startswith("memory:///"):
        raise LogUnavailable(f"log address {url!r} has no name: write memory:///name")
    with _naming:
        return MemoryLog(_named.setdefault(name, MemoryState()), url=url)
