"""Topics, groups and faults that handles of a memory log share."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...ports.log import Append, AppendRefused, NoSuchTopic, Record, TopicPartition
from .. import refusals


class Faults(Protocol):
    """Called around every append and commit; raises an error of the port to make that its outcome.

    `who` is a member's id, or "producer". Raising OutcomeUnknown before leaves nothing behind, raising it
    after leaves the commit in place: the caller cannot tell, which is the point.
    """

    def before_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Nothing was done yet; raising prevents it."""
        ...

    def after_commit(self, who: str, appends: Sequence[Append]) -> None:
        """All was done; raising only hides it."""
        ...


class NoFaults:
    """Everything works."""

    def before_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Does nothing."""

    def after_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Does nothing."""


@dataclass
class Partition:
    """A partition's records; `offsets` are theirs, for finding one by halving."""

    topic: str
    number: int
    topic_id: int
    low: int = 0
    end: int = 0
    deleted: bool = False
    records: list[Record] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def append(self, record: Append) -> int:
        """Returns the record's offset."""
        offset = self.end
        self.records.append(
            Record(self.topic, self.number, offset, record.timestamp_ms, record.key, record.value, record.headers)
        )
        self.offsets.append(offset)
        self.end += 1
        return offset

    def trim(self, oldest_ms: int) -> None:
        """Removes records up to the first one that is not older."""
        keep = next((i for i, one in enumerate(self.records) if one.timestamp_ms >= oldest_ms), len(self.records))
        if keep:
            self.low = self.offsets[keep] if keep < len(self.offsets) else self.end
            del self.records[:keep], self.offsets[:keep]


@dataclass
class Group:
    """A consumer group; `version` changes with members and leases."""

    version: int = 0
    generation: int = 0
    members: dict[str, float] = field(default_factory=dict)  # in join order -> deadline by the state's clock
    leases: dict[int, tuple[str, int]] = field(default_factory=dict)  # partition -> owner, generation
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def remove(self, member_id: str) -> None:
        """Ends a membership and frees its leases."""
        self.members.pop(member_id, None)
        self.leases = {p: lease for p, lease in self.leases.items() if lease[0] != member_id}
        self.version += 1


class MemoryState:
    """What handles share.

    `clock` (monotonic seconds) makes members that do not poll for `lease_ttl` seconds lose their partitions;
    without one only `expel` and `Member.close` end a membership. With `markers` every append and commit uses
    up one more offset of each partition it wrote to, as Kafka's transaction markers do. `now_us` is the log's
    clock, by default the machine's.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        now_us: Callable[[], int] | None = None,
        lease_ttl: float = 10.0,
        faults: Faults | None = None,
        markers: bool = False,
        identity: str | None = None,
    ) -> None:
        self.clock = clock
        self.now_us = now_us if now_us is not None else lambda: time.time_ns() // 1000
        self.lease_ttl = lease_ttl
        self.faults: Faults = faults or NoFaults()
        self.markers = markers
        self.identity = identity if identity is not None else uuid.uuid4().hex
        self.topics: dict[str, list[Partition]] = {}
        self.retention_ms: dict[str, int | None] = {}
        self.groups: dict[str, Group] = {}
        self.changes = 0
        self.made = 0  # topics, deleted ones included
        self.changed = threading.Condition(threading.RLock())
        self._members = 0

    def expel(self, member_id: str) -> None:
        """Ends a membership as a dead process does: its next commit is Fenced, its next poll tells of it."""
        with self.changed:
            for group in self.groups.values():
                if member_id in group.members:
                    group.remove(member_id)
            self.tell()

    def tell(self) -> None:
        """Wakes all who wait. Called with `changed` held."""
        self.changes += 1
        self.changed.notify_all()

    def partition(self, topic: str, partition: int) -> Partition:
        """Raises NoSuchTopic."""
        partitions = self.topics.get(topic, [])
        if not 0 <= partition < len(partitions):
            raise refusals.no_such(topic, partition)
        return partitions[partition]

    def member_id(self, name: str) -> str:
        """A new id: counted, so that a simulation gets the same ones again."""
        with self.changed:
            self._members += 1
            return f"{name}-{self._members}"

    def bury(self, group: Group) -> None:
        """Removes members whose time is over. Called with `changed` held."""
        if self.clock is not None:
            now = self.clock()
            for member_id in [one for one, deadline in group.members.items() if deadline < now]:
                group.remove(member_id)

    def deadline(self) -> float:
        """Until when a member that polls now lives."""
        return self.clock() + self.lease_ttl if self.clock is not None else 0.0

    def append(self, appends: Sequence[Append]) -> list[int]:
        """All or none. Called with `changed` held. Raises AppendRefused."""
        for record in appends:
            refusals.check_size(record)
        try:
            targets = [self.partition(record.topic, record.partition) for record in appends]
        except NoSuchTopic as error:
            raise AppendRefused(f"nothing was appended: {error}") from error
        offsets = [target.append(record) for target, record in zip(targets, appends, strict=True)]
        if self.markers:
            for target in {id(target): target for target in targets}.values():
                target.end += 1
        return offsets
