"""The RocksDB store of one (branch, partition).

Every family is a `Column`: a RocksDB column family of its own in a full store, a one-byte key prefix in an
overlay's folder. Scans are read in chunks, each from an iterator that lives for that chunk only: they never
keep `close` waiting, and what is written between two chunks may or may not be seen.

`write` does not sync: the log is the truth, and the positions that a batch carries tell after a crash how far
the store got.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocksdict import ColumnFamily, Rdict, RdictIter, WriteBatch

from ..ports.store import Delete, Family, Put, Store, Version, View
from . import keys
from .content import PLAIN, VERSIONED, AsOf, Entry, FamilyTable, digest_of
from .errors import Guard, translate
from .overlay import NewLayer, Overlay

_CHUNK_FIRST, _CHUNK_MAX = 32, 1024
_NEWEST = b"\xff" * keys.SEQ_BYTES


class Column(NamedTuple):
    """Where one family lies: `head` starts each of its keys."""

    cells: Rdict
    handle: ColumnFamily
    head: bytes


class RocksReads:
    """`View` of now over an open database, plus `entries`, `digest` and `close`."""

    def __init__(self, path: str, database: Rdict, columns: dict[Family, Column]) -> None:
        self.path = path
        self._guard = Guard(path)
        self._attach(database, columns)

    def _attach(self, database: Rdict, columns: dict[Family, Column]) -> None:
        self._database = database
        self._plain = FamilyTable({family: columns[family] for family in PLAIN})
        self._versioned = FamilyTable({family: columns[family] for family in VERSIONED})

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value."""
        with self._guard:
            cells, _, head = self._plain[family]
            value: bytes | None = cells.get(head + key)
            return value

    def latest(self, family: Family, key: bytes) -> Version | None:
        """A versioned key's newest value: one seek."""
        with self._guard:
            return self._floor(family, key, _NEWEST)

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """A versioned key's newest value written at `seq` or before: one seek."""
        if seq < 0:
            return None
        with self._guard:
            return self._floor(family, key, keys.pack_seq(min(seq, keys.SEQ_MAX)))

    def _floor(self, family: Family, key: bytes, seq: bytes) -> Version | None:
        cells, _, head = self._versioned[family]
        versions = head + keys.escape(key)
        cursor = cells.iter()
        cursor.seek_for_prev(versions + seq)
        if not cursor.valid():
            cursor.status()
            return None
        found = cursor.key()
        return Version(keys.seq_of(found), cursor.value()) if found.startswith(versions) else None

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """A versioned key's values with `first <= seq <= last`, oldest first unless `reverse`."""
        first, last = max(first, 0), keys.SEQ_MAX if last is None else min(last, keys.SEQ_MAX)
        if first > last:
            return
        versions = keys.escape(key)
        low, high = versions + keys.pack_seq(first), versions + keys.pack_seq(last)
        for stored, value in self._range(True, family, versions, high if reverse else low, reverse):
            seq = keys.seq_of(stored)
            if not first <= seq <= last:
                return
            yield Version(seq, value)

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """A plain family's keys with `prefix`, in byte order, from `start` on."""
        left = -1 if limit is None else limit
        for entry in self._range(False, family, prefix, max(prefix, start or b"")):
            if left == 0:
                return
            left -= 1
            yield entry

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """The distinct keys of a versioned family with `prefix`, in byte order: one seek each."""
        within = keys.escape_prefix(prefix)
        at, size = within, _CHUNK_FIRST
        while True:
            with self._guard:
                found = self._distinct(family, within, at, size)
            for stored in found:
                yield keys.split(stored)[0]
            if len(found) < size:
                return
            at, size = keys.after(found[-1]), min(size * 2, _CHUNK_MAX)

    def _distinct(self, family: Family, within: bytes, at: bytes, size: int) -> list[bytes]:
        cells, _, head = self._versioned[family]
        cursor, found = cells.iter(), list[bytes]()
        cursor.seek(head + at)
        while len(found) < size and cursor.valid():
            stored = cursor.key()
            if not stored.startswith(head + within):
                return found
            found.append(stored[len(head) :])
            cursor.seek(head + keys.after(found[-1]))
        cursor.status()
        return found

    def entries(self, family: Family) -> Iterator[Entry]:
        """All of a family's stored keys and values in byte order."""
        return self._range(family.versioned, family, b"", b"")

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over all families' keys and values in order, META keys in `skip` left out."""
        return digest_of(self, skip)

    def close(self) -> None:
        """Ends scans under way with a StoreError at their next chunk, and frees the folder."""
        if self._guard.close():
            self._detach()

    def _detach(self) -> None:
        """Closes the database, which lets go of the folder once no column, handle or iterator is left."""
        open_cells = {id(cells): cells for cells, *_ in (*self._plain.values(), *self._versioned.values())}
        open_cells[id(self._database)] = self._database
        self._plain, self._versioned = FamilyTable(), FamilyTable()
        failed: Exception | None = None
        for cells in open_cells.values():
            try:
                cells.close()
            except Exception as error:  # noqa: BLE001 - raised below, when the rest is closed
                failed = failed or error
        if failed is not None:
            raise translate(self.path, failed) from failed

    def _range(
        self, versioned: bool, family: Family, within: bytes, at: bytes, reverse: bool = False
    ) -> Iterator[Entry]:
        """Stored keys that start with `within`, from `at` on (down from `at` when `reverse`), in chunks."""
        size, again = _CHUNK_FIRST, False
        while True:
            with self._guard:
                chunk = self._chunk((self._versioned if versioned else self._plain)[family], within, at, size, reverse)
            # The key that a later chunk begins at was the last one of the chunk before it.
            yield from (chunk[1:] if again and chunk and chunk[0][0] == at else chunk)
            if len(chunk) < size:
                return
            at, size, again = chunk[-1][0], min(size * 2, _CHUNK_MAX), True

    @staticmethod
    def _chunk(column: Column, within: bytes, at: bytes, size: int, reverse: bool) -> list[Entry]:
        cells, _, head = column
        cursor: RdictIter = cells.iter()
        step: Callable[[], None] = cursor.prev if reverse else cursor.next
        (cursor.seek_for_prev if reverse else cursor.seek)(head + at)
        chunk, within, skip = list[Entry](), head + within, len(head)
        while cursor.valid():
            stored = cursor.key()
            if len(chunk) == size or not stored.startswith(within):
                return chunk
            chunk.append((stored[skip:], cursor.value()))
            step()
        cursor.status()
        return chunk


class RocksStore(RocksReads):
    """A store open for writing."""

    def __init__(
        self,
        path: str,
        database: Rdict,
        columns: dict[Family, Column],
        *,
        new_layer: NewLayer,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(path, database, columns)
        self._new_layer = new_layer
        self._on_close = on_close

    def write(self, changes: Sequence[Put | Delete]) -> None:
        """Applies all in one atomic batch, in order, without a sync."""
        with self._guard:
            self._database.write(self._batch(changes))

    def _batch(self, changes: Sequence[Put | Delete]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        put, plain, versioned = batch.put, self._plain, self._versioned
        escape, pack_seq = keys.escape, keys.pack_seq
        try:
            for change in changes:
                key, seq = change.key, change.seq
                _, handle, head = (plain if seq is None else versioned)[change.family]
                if isinstance(change, Delete):
                    batch.delete(head + (key if seq is None else keys.versioned(key, seq)), handle)
                elif seq is None:
                    put(head + key, change.value, handle)
                else:
                    put(head + escape(key) + pack_seq(seq), change.value, handle)
        except struct.error as error:
            raise ValueError(f"a put has a seq outside of 0..{keys.SEQ_MAX}: nothing was written") from error
        return batch

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def branch(self, path: str, seq: int) -> Store:
        """A writable overlay in the new folder `path`. Raises StoreError when something is there already."""
        return Overlay(self._new_layer(path, seq), self, seq, self._new_layer)

    def close(self) -> None:
        """Ends scans under way with a StoreError at their next chunk, and frees the folder."""
        if self._guard.close():
            try:
                self._detach()
            finally:
                self._on_close()
