"""The tables of the embedded log and how a batch's row is numbered."""

from __future__ import annotations

from hashlib import blake2b

APPLICATION_ID = 0x52776E51  # "RwnQ", shown by file(1)
FORMAT = 1

# A batch's row id is its partition's number followed by its base offset, so that the rows of a partition lie
# together in order. A composite key would do the same WITHOUT ROWID, but such a tree keeps part of each blob
# in its inner pages and becomes deep. 42 bits are over a year of offsets at 100 000 records a second, 21 bits
# two million partitions.
_OFFSET_BITS = 42
OFFSET_MAX = (1 << _OFFSET_BITS) - 1
TP_MAX = (1 << 21) - 1

# AUTOINCREMENT: numbers are never used again, so a reader of a deleted topic cannot end up in another one.
TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics(
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL,
    retention_ms INTEGER, compact INTEGER NOT NULL);
CREATE TABLE partitions(
    tp INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL, partition INTEGER NOT NULL,
    low INTEGER NOT NULL, low_chain BLOB NOT NULL,
    end_offset INTEGER NOT NULL, head_chain BLOB NOT NULL, top_ts INTEGER, UNIQUE(topic, partition));
CREATE TABLE batches(
    id INTEGER PRIMARY KEY, count INTEGER NOT NULL, min_ts INTEGER NOT NULL, top_ts INTEGER NOT NULL,
    codec INTEGER NOT NULL, chain BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE dropped(tp INTEGER PRIMARY KEY);
CREATE TABLE groups(
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE group_offsets(
    grp INTEGER NOT NULL, tp INTEGER NOT NULL, next_offset INTEGER NOT NULL, PRIMARY KEY(grp, tp)) WITHOUT
    ROWID;
CREATE TABLE members(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, grp INTEGER NOT NULL, member_id TEXT NOT NULL UNIQUE, name TEXT NOT
    NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL, boot TEXT NOT NULL, namespace INTEGER NOT NULL,
    deadline REAL NOT NULL);
CREATE TABLE leases(
    grp INTEGER NOT NULL, partition INTEGER NOT NULL, owner TEXT NOT NULL, generation INTEGER NOT NULL,
    PRIMARY KEY(grp, partition)) WITHOUT ROWID;
"""


def batch_id(tp: int, base_offset: int) -> int:
    """The row id of the batch that begins at this offset."""
    return tp << _OFFSET_BITS | base_offset


def base_offset(row_id: int) -> int:
    """The offset of a batch's first record."""
    return row_id & OFFSET_MAX


def first_chain(identity: str, topic: str, partition: int) -> bytes:
    """The chain value before a partition's first batch: it ties the chain to this log and partition."""
    return blake2b(f"{identity}\0{partition}\0{topic}".encode(), digest_size=16).digest()
