"""The embedded log as the port knows it."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from ...ports.log import (
    Append,
    GroupState,
    LogUnavailable,
    Ownership,
    TopicPartition,
    TopicSpec,
)
from .. import refusals
from ..fetching import PartitionReader
from ..membership import GroupMember
from . import appending, clock, schema
from .database import Database
from .errors import damaged
from .groups import Groups
from .reading import SqliteSource, damage_at
from .seat import SqliteSeat
from .topics import Topics

LEASE_TTL_S = 10.0
BUSY_TIMEOUT_S = 5.0


class SqliteProducer:
    """Appends records durably, in one transaction per call."""

    def __init__(self, database: Database, topics: Topics) -> None:
        self._database = database
        self._topics = topics

    def append(self, records: Sequence[Append]) -> list[int]:
        """Appends all or none and returns their offsets in order."""
        if not records:
            return []
        prepared = appending.prepare(records)
        with self._database.write(appending=True) as connection:
            return appending.write(connection, self._topics, prepared)

    def close(self) -> None:
        """Every append was durable when it returned: there is nothing left to do."""


class SqliteLog:
    """A log in one SQLite file. Any number of processes of this machine may have it open."""

    def __init__(
        self,
        path: str | Path,
        *,
        url: str | None = None,
        lease_ttl: float = LEASE_TTL_S,
        busy_timeout: float = BUSY_TIMEOUT_S,
    ) -> None:
        """Opens the file, or creates it with its folder.

        `lease_ttl`: after so many seconds without a sign of life a member that still exists loses its
        partitions (one whose process has ended loses them at once). `busy_timeout`: how many seconds to wait
        for other processes. Raises LogUnavailable or LogDamaged.
        """
        self.path = Path(path).absolute()
        self.url = url if url is not None else f"sqlite:///{self.path}"
        self._lease_ttl = lease_ttl
        self._database = Database(self.path, busy_timeout)
        try:
            self._identity = self._read_identity()
            self._check_heads()
        except BaseException:
            self._database.close()
            raise
        self._topics = Topics(self._database, self._identity)
        self._source = SqliteSource(self._database, self._topics)
        self._groups = Groups(self._database, self._topics)
        self._members: list[GroupMember] = []  # kept: a member nobody refers to would be renewed for ever
        self._members_lock = threading.Lock()

    def identity(self) -> str:
        """The file's own uuid."""
        return self._identity

    def now_us(self, topic: str) -> int:
        """The clock that all processes share, see `clock.py`. Raises LogUnavailable, LogDamaged."""
        return clock.now_us(self._database)

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing. Raises PartitionCountMismatch."""
        self._topics.create(specs)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with their records; unknown names are passed over."""
        self._topics.delete(names)

    def topics(self, prefix: str = "") -> dict[str, int]:
        """Names and partition counts of the topics whose name begins with `prefix`."""
        return self._topics.counts(prefix)

    def retention_ms(self, topic: str) -> int | None:
        """None: this log removes nothing by itself."""
        self.bounds(topic, 0)
        return None

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """The topics' row ids, which are never used again. Raises NoSuchTopic."""
        return self._topics.ids(names)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """`(low, end)`. Raises NoSuchTopic."""
        query = (
            "SELECT low, end_offset FROM partitions WHERE partition = ? "
            "AND topic = (SELECT id FROM topics WHERE name = ?)"
        )
        with self._database.read() as connection:
            row = connection.execute(query, (partition, topic)).fetchone()
        if row is None:
            raise refusals.no_such(topic, partition)
        return row[0], row[1]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; `end` when there is none."""
        low, end = self.bounds(topic, partition)
        tp = self._source.cursor(topic, partition, low).tp
        found = self._batch_at(tp, low, end, timestamp_ms)
        records = self._source.cursor(topic, partition, found).read(1)
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), end)

    def reader(self, positions: Mapping[TopicPartition, int]) -> PartitionReader:
        """A reader that starts at these offsets. Raises NoSuchTopic; its `poll` raises OffsetOutOfRange."""
        return PartitionReader(self._source, positions)

    def producer(self) -> SqliteProducer:
        """A producer; it holds nothing of its own."""
        return SqliteProducer(self._database, self._topics)

    def join(self, group: str, inputs: Sequence[str], ownership: Ownership, *, name: str) -> GroupMember:
        """Joins a consumer group. Raises NoSuchTopic, and PartitionCountMismatch between inputs."""
        partitions = refusals.input_partitions(self.topics(), inputs)
        seat = SqliteSeat(self._database, self._topics, group, name, partitions, self._lease_ttl)
        member = GroupMember(seat, self._source, group, inputs, ownership)
        with self._members_lock:
            self._members = [one for one in self._members if not one.closed] + [member]
        return member

    def groups(self, prefix: str = "") -> list[GroupState]:
        """Groups whose name begins with `prefix`."""
        return self._groups.states(prefix)

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        expected: Mapping[TopicPartition, int | None] | None = None,
        appends: Sequence[Append] = (),
    ) -> None:
        """Sets committed offsets of a group without members, and appends. Raises GroupActive, OffsetsMoved."""
        self._groups.set_offsets(group, offsets, expected, appends)

    def delete_group(self, group: str) -> None:
        """Deletes a group without members; an unknown one is passed over. Raises GroupActive."""
        self._groups.delete(group)

    def trim(self, now_ms: int) -> None:
        """Removes records past their topic's retention, whole batches at a time; `now_ms` is wall time."""
        self._topics.trim(now_ms)

    def close(self) -> None:
        """Members leave their groups, then connections are closed; a second call does nothing."""
        with self._members_lock:
            members, self._members = self._members, []
        try:
            for member in members:
                member.close()
        finally:
            self._database.close()

    def _batch_at(self, tp: int, low: int, end: int, timestamp_ms: int) -> int:
        """The base of the first batch that reaches this time: `top_ts` never falls, so halving finds it."""
        found = end
        query = "SELECT id, count, top_ts FROM batches WHERE id >= ? AND id <= ? ORDER BY id DESC LIMIT 1"
        with self._database.read() as connection:
            while low < end:
                ids = schema.batch_id(tp, 0), schema.batch_id(tp, (low + end) // 2)
                row = connection.execute(query, ids).fetchone()
                if row is None:
                    break
                base = schema.base_offset(row[0])
                if row[2] >= timestamp_ms:
                    found = end = base
                else:
                    low = base + row[1]
        return found

    def _read_identity(self) -> str:
        with self._database.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        if row is None:
            raise damaged(self.path, "its identity is missing")
        return str(row[0])

    def _check_heads(self) -> None:
        """Refuses a log whose partitions do not end where the last append left them."""
        heads = (
            "SELECT tp, name, partition, low, low_chain, end_offset, head_chain "
            "FROM partitions JOIN topics ON topic = id"
        )
        last = "SELECT id, count, chain FROM batches WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1"
        with self._database.read() as connection:
            for tp, topic, partition, low, low_chain, end, head_chain in connection.execute(heads).fetchall():
                try:
                    ids = schema.batch_id(tp, 0), schema.batch_id(tp + 1, 0)
                    row = connection.execute(last, ids).fetchone()
                    found = (schema.base_offset(row[0]) + row[1], row[2]) if row else (low, low_chain)
                    place = min(found[0], end)
                except TypeError as error:  # a column that is of another type now
                    raise damaged(self.path, f"a row of {topic}/{partition} cannot be understood") from error
                if found != (end, head_chain):
                    what = f"the partition should end at {end}, and not as it was found"
                    raise damage_at(self._database, topic, partition, place, what)


def open_sqlite(url: str) -> SqliteLog:
    """Opens `sqlite:///relative/path` or `sqlite:////absolute/path`.

    Options: `?lease_ttl=SECONDS`, `?busy_timeout=SECONDS`. Raises LogUnavailable, LogDamaged.
    """
    location, _, query = url.removeprefix("sqlite:///").partition("?")
    if not location or not url.startswith("sqlite:///"):
        raise LogUnavailable(f"log address {url!r} names no file: write sqlite:///path/to/log.db")
    options = {"lease_ttl": LEASE_TTL_S, "busy_timeout": BUSY_TIMEOUT_S}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise LogUnavailable(f"log address {url!r} has the unknown option {key!r}: known are {sorted(options)}")
        options[key] = _seconds(url, key, value)
    return SqliteLog(unquote(location), url=url, lease_ttl=options["lease_ttl"], busy_timeout=options["busy_timeout"])


def _seconds(url: str, key: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise LogUnavailable(f"log address {url!r}: {key} is {value!r}, not a positive number of seconds")
    return seconds
