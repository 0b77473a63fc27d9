"""Topics and partitions: making, deleting, finding, trimming."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import takewhile

from ...ports.log import LogUnavailable, TopicPartition, TopicSpec
from .. import refusals
from . import schema
from .database import Database

# Rows deleted per transaction, so that nobody waits long for the write lock.
_DELETE_ROWS = 500


class Topics:
    """The topics of one database."""

    def __init__(self, database: Database, identity: str) -> None:
        self._database = database
        self._identity = identity
        self._numbers: dict[TopicPartition, int] = {}

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing. Raises PartitionCountMismatch."""
        if not refusals.missing_topics(specs, self.counts("")):
            return
        with self._database.write() as connection:
            present = dict(connection.execute("SELECT name, partitions FROM topics"))
            for spec in refusals.missing_topics(specs, present):
                self._insert(connection, spec)

    def counts(self, prefix: str) -> dict[str, int]:
        """Names and partition counts of topics whose name begins with `prefix`."""
        with self._database.read() as connection:
            query = "SELECT name, partitions FROM topics WHERE substr(name, 1, ?) = ? ORDER BY name"
            return dict(connection.execute(query, (len(prefix), prefix)))

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The topics' row ids. Raises NoSuchTopic."""
        with self._database.read() as connection:
            known = {name: str(number) for number, name in connection.execute("SELECT id, name FROM topics")}
        for name in names:
            if name not in known:
                raise refusals.no_such(name)
        return {name: known[name] for name in names}

    def delete(self, names: Sequence[str]) -> None:
        """Deletes topics; unknown ones are passed over. The records go afterwards, in small transactions."""
        with self._database.write() as connection:
            for name in names:
                self._unlink(connection, name)
        self._sweep()

    def find(self, connection: sqlite3.Connection, topic: str, partition: int) -> int:
        """The number of a partition. Raises NoSuchTopic.

        The number may be that of a topic deleted meanwhile: then its row is missing, and `forget` makes
        `find` look again.
        """
        number = self._numbers.get((topic, partition))
        if number is None:
            query = "SELECT tp FROM partitions WHERE partition = ? AND topic = (SELECT id FROM topics WHERE name = ?)"
            row = connection.execute(query, (partition, topic)).fetchone()
            if row is None:
                raise refusals.no_such(topic, partition)
            number = self._numbers[topic, partition] = int(row[0])
        return number

    def present(self, connection: sqlite3.Connection, topic: str, partition: int) -> int:
        """The number of a partition that is there now, a new one of its name included. Raises NoSuchTopic."""
        number = self.find(connection, topic, partition)
        if connection.execute("SELECT 1 FROM partitions WHERE tp = ?", (number,)).fetchone() is None:
            self.forget(topic, partition)
            return self.find(connection, topic, partition)
        return number

    def forget(self, topic: str, partition: int) -> None:
        """Drops what `find` remembers of a partition."""
        self._numbers.pop((topic, partition), None)

    def trim(self, now_ms: int) -> None:
        """Removes whole batches whose newest record is older than their topic's retention; `low` moves up."""
        query = "SELECT tp, retention_ms FROM partitions JOIN topics ON topic = id WHERE retention_ms IS NOT NULL"
        with self._database.read() as connection:
            due = connection.execute(query).fetchall()
        for tp, retention_ms in due:
            while self._trim_some(tp, now_ms - retention_ms):
                pass
        self._sweep()

    def _insert(self, connection: sqlite3.Connection, spec: TopicSpec) -> None:
        if not spec.name or spec.partitions < 1:
            raise ValueError(f"topic {spec.name!r} needs a name and at least one partition, not {spec.partitions}")
        topic = connection.execute(
            "INSERT INTO topics(name, partitions, retention_ms, compact) VALUES (?, ?, ?, ?)",
            (spec.name, spec.partitions, spec.retention_ms, spec.compact),
        ).lastrowid
        for partition in range(spec.partitions):
            first = schema.first_chain(self._identity, spec.name, partition)
            number = connection.execute(
                "INSERT INTO partitions(topic, partition, low, low_chain, end_offset, head_chain) "
                "VALUES (?, ?, 0, ?, 0, ?)",
                (topic, partition, first, first),
            ).lastrowid
            if (number or 0) > schema.TP_MAX:
                raise LogUnavailable(
                    f"log {self._database.path} has used up its {schema.TP_MAX} partition numbers: begin a new log"
                )

    @staticmethod
    def _unlink(connection: sqlite3.Connection, name: str) -> None:
        row = connection.execute("SELECT id FROM topics WHERE name = ?", (name,)).fetchone()
        if row is None:
            return
        numbers = "SELECT tp FROM partitions WHERE topic = ?"
        connection.execute(f"INSERT INTO dropped {numbers}", row)
        connection.execute(f"DELETE FROM group_offsets WHERE tp IN ({numbers})", row)  # noqa: S608
        connection.execute("DELETE FROM partitions WHERE topic = ?", row)
        connection.execute("DELETE FROM topics WHERE id = ?", row)

    def _sweep(self) -> None:
        """Deletes the records of dropped partitions, also those that an earlier process left half done."""
        while True:
            with self._database.read() as connection:
                row = connection.execute("SELECT tp FROM dropped LIMIT 1").fetchone()
            if row is None:
                return
            with self._database.write() as connection:
                gone = connection.execute(
                    "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE id >= ? AND id < ? LIMIT ?)",
                    (schema.batch_id(row[0], 0), schema.batch_id(row[0] + 1, 0), _DELETE_ROWS),
                ).rowcount
                if gone < _DELETE_ROWS:
                    connection.execute("DELETE FROM dropped WHERE tp = ?", row)

    def _trim_some(self, tp: int, oldest_ms: int) -> bool:
        """Removes up to `_DELETE_ROWS` batches; whether there may be more. Both range ends are row ids."""
        first, after = schema.batch_id(tp, 0), schema.batch_id(tp + 1, 0)
        query = "SELECT id, count, top_ts, chain FROM batches WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        with self._database.read() as connection:
            rows = connection.execute(query, (first, after, _DELETE_ROWS)).fetchall()
        old = list(takewhile(lambda row: row[2] < oldest_ms, rows))
        if not old:
            return False
        last, count, _, chain = old[-1]
        low = schema.base_offset(last) + count
        with self._database.write() as connection:
            connection.execute("DELETE FROM batches WHERE id >= ? AND id <= ?", (first, last))
            # Another process may have trimmed further in between: `low` never goes back.
            connection.execute(
                "UPDATE partitions SET low = ?, low_chain = ? WHERE tp = ? AND low < ?", (low, chain, tp, low)
            )
        return len(old) == len(rows)
