"""Reading: whole batches, each verified against the chain before it is decoded."""

from __future__ import annotations

import sqlite3
import struct
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.log import LogDamaged, Record
from .. import refusals
from ..fetching import Cursor, Mark
from . import batch, schema
from .database import Database
from .topics import Topics

# Read ahead at most this much per partition and look, whatever the limit of records.
_READ_BYTES = 1 << 20
# Look every millisecond while something is going on, then ever less often.
_LOOK_S, _LOOK_MAX_S, _LIVELY_S = 0.001, 0.02, 0.1


class _Row(NamedTuple):
    id: int
    records: int
    min_ts: int
    top_ts: int
    codec: int
    chain: bytes
    data: bytes


class BatchCursor:
    """Reads one partition forward, batch by batch."""

    def __init__(self, database: Database, tp: int, topic: str, partition: int, offset: int) -> None:
        self.tp = tp
        self.offset = offset
        self._database = database
        self._topic = topic
        self._partition = partition
        self._base = offset  # where the batch begins that holds `offset`; known once `_chain` is
        self._chain: bytes | None = None  # of the batch before it

    def read(self, limit: int) -> list[Record]:
        """At least `limit` next records while there are as many and not too large; whole batches.

        Raises NoSuchTopic for a deleted topic, OffsetOutOfRange, LogDamaged; what lies before damage is
        delivered.
        """
        with self._database.read() as connection:
            end = self._locate(connection)
            rows = self._rows(connection, end, limit)
        records: list[Record] = []
        for row in rows:
            try:
                self._verify(row)
            except LogDamaged:
                if records:
                    break
                self._chain = None
                raise
            records += batch.decode(
                self._topic, self._partition, self._base, row.records, row.min_ts, row.codec, row.data
            )
            self._base += row.records
        if not records:
            return records
        skipped = self.offset - records[0].offset
        self.offset = self._base
        return records[skipped:] if skipped else records

    def _locate(self, connection: sqlite3.Connection) -> int:
        """Finds the batch of `offset` and the chain value before it; returns the partition's end."""
        query = "SELECT low, low_chain, end_offset FROM partitions WHERE tp = ?"
        bounds = connection.execute(query, (self.tp,)).fetchone()
        if bounds is None:
            raise refusals.no_such(self._topic, self._partition)
        low, low_chain, end = bounds
        if not low <= self.offset <= end:
            raise refusals.out_of_range(self._topic, self._partition, self.offset, low, end)
        if self._chain is None and self.offset < end:
            first = schema.batch_id(self.tp, 0)
            wanted = schema.batch_id(self.tp, self.offset)
            query = "SELECT id, id + count > ? FROM batches WHERE id >= ? AND id <= ? ORDER BY id DESC LIMIT 1"
            found = connection.execute(query, (wanted, first, wanted)).fetchone()
            if found is None or not found[1]:
                raise self._damaged(self.offset, "its record is missing")
            self._base = schema.base_offset(found[0])
            query = "SELECT chain FROM batches WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1"
            before = connection.execute(query, (first, found[0])).fetchone()
            self._chain = before[0] if before else low_chain
        return int(end)

    def _rows(self, connection: sqlite3.Connection, end: int, limit: int) -> list[_Row]:
        rows: list[_Row] = []
        records = size = 0
        query = "SELECT id, count, min_ts, top_ts, codec, chain, data FROM batches WHERE id >= ? AND id < ? ORDER BY id"
        ids = schema.batch_id(self.tp, self._base), schema.batch_id(self.tp, end)
        for fields in connection.execute(query, ids) if self._base < end else ():
            rows.append(row := _Row(*fields))
            try:
                records += row.records
                size += len(row.data)
            except TypeError:  # a column that is of another type now: `_verify` names its place
                return rows
            if records >= limit or size >= _READ_BYTES:
                return rows
        if not rows and self._base < end:
            raise self._damaged(self._base, f"the records from here to {end} are missing")
        return rows

    def _verify(self, row: _Row) -> None:
        if schema.base_offset(row.id) != self._base:
            raise self._damaged(self._base, "its record is missing")
        try:
            digest = batch.digest_of(row.data)
            fields = (self._base, row.records, row.min_ts, row.top_ts, row.codec)
            chain = batch.chain(self._chain or b"", *fields, digest)
        except (struct.error, TypeError) as error:  # a column that is of another type now
            raise self._damaged(self._base, "its row cannot be understood") from error
        if chain != row.chain:
            raise self._damaged(self._base, "the stored bytes do not match their checksum")
        self._chain = chain

    def _damaged(self, offset: int, what: str) -> LogDamaged:
        return damage_at(self._database, self._topic, self._partition, offset, what)


def damage_at(database: Database, topic: str, partition: int, offset: int, what: str) -> LogDamaged:
    """The error for damage at a known place."""
    return LogDamaged(
        f"log {database.path} is damaged at {topic}/{partition} offset {offset}: {what}. "
        "Stop its workers, keep a copy of the file and its -wal, and restore from a backup"
    )


class SqliteSource:
    """Cursors over a database, and waiting for commits of any process."""

    def __init__(self, database: Database, topics: Topics) -> None:
        self._database = database
        self._topics = topics
        self._lively_until = 0.0
        self._lock = threading.Lock()

    def cursor(self, topic: str, partition: int, offset: int) -> BatchCursor:
        """A cursor at this offset. Raises NoSuchTopic."""
        with self._database.read() as connection:
            for _ in range(2):
                tp = self._topics.find(connection, topic, partition)
                if connection.execute("SELECT 1 FROM partitions WHERE tp = ?", (tp,)).fetchone():
                    return BatchCursor(self._database, tp, topic, partition, offset)
                self._topics.forget(topic, partition)
        raise refusals.no_such(topic, partition)

    def ready(self, cursors: Sequence[Cursor]) -> Sequence[Cursor]:
        """Those whose offset is not their partition's end; one look for all of them."""
        numbered = {one.tp: one for one in cursors if isinstance(one, BatchCursor)}
        places = ",".join("?" * len(numbered))
        query = f"SELECT tp, end_offset FROM partitions WHERE tp IN ({places})"  # noqa: S608
        with self._database.read() as connection:
            ends = dict(connection.execute(query, tuple(numbered)))
        return [one for tp, one in numbered.items() if ends.get(tp) != one.offset]

    def mark(self) -> Mark:
        """How often this process committed, and the state of the file."""
        return self._database.bell.count, self._database.data_version()

    def wait(self, mark: Mark, timeout: float) -> None:
        """Returns once something was committed after the mark, or after `timeout` seconds."""
        bell = self._database.bell
        deadline = time.monotonic() + timeout
        look = _LOOK_S
        while (remaining := deadline - time.monotonic()) > 0:
            if bell.wait(mark[0], min(look, remaining)) or self._database.data_version() != mark[1]:
                self._lively_until = time.monotonic() + _LIVELY_S
                return
            if time.monotonic() > self._lively_until:
                look = min(look * 1.25, _LOOK_MAX_S)
