"""The log port: append-only partitioned topics, consumer groups and atomic commits.

Three implementations promise exactly this and nothing more: embedded (SQLite), Kafka and in-memory. The contract
tests in `tests/contract` run against each of them.

Words: a *topic* has partitions numbered from 0; a record's *offset* grows within its partition, and may skip
numbers (a Kafka transaction marker takes one), so nobody computes "last offset" as a count. `low` is the first
offset that may still be read, `end` the offset that the next readable record will have or exceed.

Every append has three outcomes: done (it returns), surely not done (`AppendRefused`, `Fenced`), or unknown
(`OutcomeUnknown`): then the caller must read the log's end to learn what happened, never guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

TopicPartition = tuple[str, int]


class LogError(Exception):
    """Base of what a log raises on purpose."""


class LogUnavailable(LogError):
    """The log cannot be reached or opened; nothing was done. The message names the address and the next step."""


class LogDamaged(LogError):
    """Stored records fail their checksum, or are fewer than was acknowledged. Names topic, partition and offset."""


class AppendRefused(LogError):
    """Surely not appended: too large, unknown topic, disk full, aborted transaction. Says which and why."""


class Fenced(LogError):
    """Surely not appended: this member's ownership has passed to another. Stop writing, join again."""


class OutcomeUnknown(LogError):
    """The append or commit may or may not have happened (a time-out). Read the log's end before going on."""


class GroupActive(LogError):
    """A group's offsets cannot be altered while members are running. Names the members."""


class OffsetsMoved(LogError):
    """A group's offsets are not what they were expected to be: somebody else has set them. Nothing was done."""


class NoSuchTopic(LogError):
    """The topic or partition does not exist."""


class OffsetOutOfRange(LogError):
    """A reader asked for an offset below `low` or above `end`. Names topic, partition, the offset asked and both."""

    def __init__(self, message: str, partition: int) -> None:
        super().__init__(message)
        self.partition = partition


class PartitionCountMismatch(LogError):
    """A topic exists with another partition count. Names the topic and both counts."""


class TopicSpec(NamedTuple):
    """How a topic is made: its name, partition count and what is kept.

    `retention_ms` None keeps every record; `compact` keeps the newest record of a key (Kafka does it; the embedded
    log may keep more).
    """

    name: str
    partitions: int
    retention_ms: int | None = None
    compact: bool = False


class Append(msgspec.Struct, frozen=True, gc=False):
    """A record to append. `key` routes and compacts; the partition is chosen by the caller."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Record(NamedTuple):
    """A stored record as read back."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Turn(NamedTuple):
    """One atomic commit of a processor: records to append and input offsets consumed.

    `offsets` maps an input partition to the next offset to read. `partitions` are the owned partitions this turn
    speaks for: the commit is refused (`Fenced`) when any of them is no longer owned by the member.
    """

    appends: Sequence[Append]
    offsets: Mapping[TopicPartition, int]
    partitions: frozenset[int]


class GroupState(NamedTuple):
    """A consumer group as an operator sees it: its members now and its committed offsets."""

    name: str
    members: tuple[str, ...]
    offsets: dict[TopicPartition, int]


class Reader(Protocol):
    """Reads committed records of given partitions from given offsets, in offset order within each partition."""

    def poll(self, limit: int = 1000, timeout: float = 0.0) -> list[Record]:
        """Up to `limit` next records over all partitions; waits up to `timeout` seconds for the first one."""
        ...

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be read. It passes markers and gaps, so reaching `end` means that all was read."""
        ...

    def close(self) -> None:
        """Frees what the reader holds."""
        ...


class Producer(Protocol):
    """Appends records durably, outside of any consumer group."""

    def append(self, records: Sequence[Append]) -> list[int]:
        """Appends all and returns their offsets in order, once durable.

        Records of one partition keep their order. Raises AppendRefused when surely none was appended, OutcomeUnknown
        otherwise.
        """
        ...

    def close(self) -> None:
        """Flushes and frees."""
        ...


class Ownership(Protocol):
    """What a member tells its worker about partitions. Called from the thread that polls the member.

    While it is told `revoked` or `lost`, which may take long, it may call `Member.poll`: that delivers records of the
    partitions that stay, and runs no rebalance.
    """

    def assigned(self, partitions: list[int]) -> None:
        """The member now owns these. Nothing is fetched for a partition until `Member.start` is called for it."""
        ...

    def revoked(self, partitions: list[int]) -> None:
        """These are to be handed over: returns when the last commit that involves them has ended either way."""
        ...

    def lost(self, partitions: list[int]) -> None:
        """These are owned by somebody else already: append nothing for them; what is under way will be Fenced."""
        ...


class Member(Protocol):
    """One worker's membership in a consumer group over co-partitioned input topics.

    `poll` is called from one thread; `commit` may be called from another one at the same time. A partition number
    stands for that partition of all input topics.
    """

    member_id: str

    def poll(self, timeout: float, limit: int = 1000) -> list[Record]:
        """Next input records of started, unpaused partitions; waits up to `timeout` seconds; runs rebalances."""
        ...

    def start(self, partition: int, offsets: Mapping[str, int]) -> None:
        """Begins to fetch an owned partition's input topics at these offsets (topic -> next offset)."""
        ...

    def stop(self, partition: int) -> None:
        """Fetches nothing more of a partition, which stays owned, until `start` is called for it again."""
        ...

    def pause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Stops delivering a started partition's records, of some input topics (None: of all), keeping its position."""
        ...

    def unpause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Delivers a paused partition's records again; as `pause`."""
        ...

    def commit(self, turn: Turn) -> list[int]:
        """Appends the turn's records and commits its offsets in one transaction; returns the records' offsets.

        Raises Fenced (surely nothing was done, ownership is gone), AppendRefused (surely nothing was done, the member
        may go on) or OutcomeUnknown.
        """
        ...

    def close(self) -> None:
        """Leaves the group at once, so that its partitions pass on without waiting for a time-out."""
        ...


class Log(Protocol):
    """A log: topics, reading, producing, groups. Safe to use from several threads."""

    url: str

    def identity(self) -> str:
        """An id of this very log that a re-created one does not share (a cluster id; a file's own uuid)."""
        ...

    def now_us(self, topic: str) -> int:
        """The log's own clock, the same for all who use the log: microseconds since 1970, whole milliseconds on Kafka.

        On Kafka the broker that leads partition 0 of `topic`, which must have a retention, tells it with a record that
        is appended there. Raises LogUnavailable.
        """
        ...

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing. Raises PartitionCountMismatch when one exists with another count."""
        ...

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with their records; unknown names are passed over."""
        ...

    def topics(self, prefix: str = "") -> dict[str, int]:
        """Names and partition counts of the topics whose name begins with `prefix`."""
        ...

    def retention_ms(self, topic: str) -> int | None:
        """How long the log keeps a topic's records before it removes them by itself, milliseconds; None: for ever.

        Raises NoSuchTopic, or LogError where it is not told.
        """
        ...

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """An id of each topic that one made anew under its name does not share. Raises NoSuchTopic."""
        ...

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """`(low, end)` of what a reader of committed records sees. Raises NoSuchTopic."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; `end` when there is none."""
        ...

    def reader(self, positions: Mapping[TopicPartition, int]) -> Reader:
        """A reader that starts at these offsets. Raises NoSuchTopic."""
        ...

    def producer(self) -> Producer:
        """A producer of this process."""
        ...

    def join(self, group: str, inputs: Sequence[str], ownership: Ownership, *, name: str) -> Member:
        """Joins a consumer group. `inputs[0]` decides the assignment; `name` is shown to operators."""
        ...

    def groups(self, prefix: str = "") -> list[GroupState]:
        """Groups whose name begins with `prefix`."""
        ...

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        expected: Mapping[TopicPartition, int | None] | None = None,
        appends: Sequence[Append] = (),
    ) -> None:
        """Sets committed offsets of a group without members, making the group, and appends records: all or nothing.

        `expected`: what is committed now, None for nothing. Of those who set offsets from the same expectation only
        one succeeds where records are appended. Raises GroupActive, OffsetsMoved, AppendRefused, OutcomeUnknown.
        """
        ...

    def delete_group(self, group: str) -> None:
        """Deletes a group without members; an unknown one is passed over. Raises GroupActive."""
        ...

    def close(self) -> None:
        """Frees connections and files."""
        ...
