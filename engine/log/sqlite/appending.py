"""Appending: encode outside of the transaction, number and chain inside."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.log import Append, AppendRefused, NoSuchTopic, TopicPartition
from . import batch, schema
from .topics import Topics


class Prepared(NamedTuple):
    """Encoded batches per partition, and which records (of how many) went into them."""

    records: int
    batches: dict[TopicPartition, list[batch.Batch]]
    places: dict[TopicPartition, Sequence[int]]


def prepare(appends: Sequence[Append]) -> Prepared:
    """Sorts records by partition and encodes them. Raises AppendRefused for one that is too large."""
    places: dict[TopicPartition, Sequence[int]] = {}
    if len({(record.topic, record.partition) for record in appends}) == 1:
        places[appends[0].topic, appends[0].partition] = range(len(appends))
    else:
        lists: dict[TopicPartition, list[int]] = {}
        for index, record in enumerate(appends):
            lists.setdefault((record.topic, record.partition), []).append(index)
        places.update(lists)
    batches = {key: batch.encode([appends[index] for index in indexes]) for key, indexes in places.items()}
    return Prepared(len(appends), batches, places)


def write(connection: sqlite3.Connection, topics: Topics, prepared: Prepared) -> list[int]:
    """Inserts what was prepared; returns the records' offsets. Raises AppendRefused for an unknown topic."""
    offsets = [0] * prepared.records
    for key, batches in prepared.batches.items():
        base = _append(connection, topics, key, batches)
        for rank, index in enumerate(prepared.places[key]):
            offsets[index] = base + rank
    return offsets


def _append(connection: sqlite3.Connection, topics: Topics, key: TopicPartition, batches: Sequence[batch.Batch]) -> int:
    tp, base, chain, top_ts = _head(connection, topics, key)
    end = base
    rows = []
    for one in batches:
        top_ts = one.max_ts if top_ts is None else max(top_ts, one.max_ts)
        chain = batch.chain(chain, end, one.records, one.min_ts, top_ts, one.codec, one.digest)
        rows.append((schema.batch_id(tp, end), one.records, one.min_ts, top_ts, one.codec, chain, one.data))
        end += one.records
    if end > schema.OFFSET_MAX:
        raise AppendRefused(f"partition {key[0]}/{key[1]} is full at offset {base}: begin a new topic")
    connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute(
        "UPDATE partitions SET end_offset = ?, head_chain = ?, top_ts = ? WHERE tp = ?",
        (end, chain, top_ts, tp),
    )
    return base


def _head(connection: sqlite3.Connection, topics: Topics, key: TopicPartition) -> tuple[int, int, bytes, int | None]:
    """The partition's number, end, chain value and newest time. The topic may be a new one: look twice."""
    for _ in range(2):
        try:
            tp = topics.find(connection, *key)
        except NoSuchTopic as error:
            raise AppendRefused(f"nothing was appended: {error}") from error
        query = "SELECT end_offset, head_chain, top_ts FROM partitions WHERE tp = ?"
        row = connection.execute(query, (tp,)).fetchone()
        if row is not None:
            return tp, row[0], row[1], row[2]
        topics.forget(*key)
    raise AppendRefused(f"nothing was appended: topic {key[0]} is gone")
