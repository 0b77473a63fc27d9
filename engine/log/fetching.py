"""Delivery of records from several partitions to one consumer, fair between them: for the local logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..ports.log import Record, TopicPartition

Mark = tuple[int, int]


class Cursor(Protocol):
    """Reads one partition forward. `offset` is the next offset that `read` will look at."""

    offset: int

    def read(self, limit: int) -> list[Record]:
        """About `limit` next records, at least one; none at the end. Raises what the port says of reading."""
        ...


class Source(Protocol):
    """Where cursors come from, and how to wait for more."""

    def cursor(self, topic: str, partition: int, offset: int) -> Cursor:
        """A cursor at this offset. Raises NoSuchTopic."""
        ...

    def ready(self, cursors: Sequence[Cursor]) -> Sequence[Cursor]:
        """Those of the cursors that may have something to read."""
        ...

    def mark(self) -> Mark:
        """A mark of what was committed up to now, for `wait`."""
        ...

    def wait(self, mark: Mark, timeout: float) -> None:
        """Returns once something was committed after the mark, or after `timeout` seconds."""
        ...


class _Followed:
    """A followed partition: what was read ahead, and from where to read on."""

    __slots__ = ("buffer", "cursor", "paused", "taken")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.buffer: list[Record] = []
        self.taken = 0
        self.paused = False

    @property
    def position(self) -> int:
        if self.taken < len(self.buffer):
            return self.buffer[self.taken].offset
        return self.cursor.offset

    def take(self, limit: int) -> list[Record]:
        records = self.buffer[self.taken : self.taken + limit]
        self.taken += len(records)
        return records


class Fetcher:
    """Follows partitions and hands out their records. Safe to use from several threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._followed: dict[TopicPartition, _Followed] = {}
        self._turn = 0  # whose turn it is to be served first
        self._lock = threading.Lock()

    def follow(self, positions: Mapping[TopicPartition, int]) -> None:
        """Begins at these offsets, forgetting what was read ahead before. Raises NoSuchTopic."""
        cursors = {key: _Followed(self._source.cursor(key[0], key[1], offset)) for key, offset in positions.items()}
        with self._lock:
            self._followed.update(cursors)

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Stops following."""
        with self._lock:
            for key in keys:
                self._followed.pop(key, None)

    def pause(self, keys: Iterable[TopicPartition], paused: bool) -> None:
        """Holds back or delivers again; the position stays."""
        with self._lock:
            for key in keys:
                if key in self._followed:
                    self._followed[key].paused = paused

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be delivered. Raises KeyError for a partition that is not followed."""
        with self._lock:
            return self._followed[topic, partition].position

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records that can be had without waiting."""
        with self._lock:
            active = [one for one in self._followed.values() if not one.paused]
            if not active:
                return []
            self._read_ahead(active, limit)
            self._turn = (self._turn + 1) % len(active)
            records: list[Record] = []
            for one in active[self._turn :] + active[: self._turn]:
                records += one.take(limit - len(records))
                if len(records) == limit:
                    break
            return records

    def _read_ahead(self, active: list[_Followed], limit: int) -> None:
        """Fills empty buffers. It comes before anything is handed out, so that an error loses no record."""
        empty = {id(one.cursor): one for one in active if one.taken == len(one.buffer)}
        if not empty:
            return
        for cursor in self._source.ready([one.cursor for one in empty.values()]):
            one = empty[id(cursor)]
            one.buffer, one.taken = cursor.read(limit), 0


class PartitionReader:
    """The port's Reader over a source."""

    def __init__(self, source: Source, positions: Mapping[TopicPartition, int]) -> None:
        self._source = source
        self._fetcher = Fetcher(source)
        self._fetcher.follow(positions)

    def poll(self, limit: int = 1000, timeout: float = 0.0) -> list[Record]:
        """Up to `limit` next records; waits up to `timeout` seconds for the first one."""
        deadline = time.monotonic() + timeout if timeout > 0 else None
        while True:
            mark = self._source.mark()
            records = self._fetcher.take(limit)
            if records or deadline is None:
                return records
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return records
            self._source.wait(mark, remaining)

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be read."""
        return self._fetcher.position(topic, partition)

    def close(self) -> None:
        """Forgets what was read ahead."""
        self._fetcher = Fetcher(self._source)
