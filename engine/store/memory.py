"""The store in memory: the same contract without a folder, for tests, simulation and short-lived branches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..ports.store import Delete, Family, Put, Store, Version, View
from . import keys
from .content import PLAIN, VERSIONED, AsOf, Entry, FamilyTable, digest_of
from .errors import closed
from .overlay import Overlay


class _Plain(NamedTuple):
    order: list[bytes]
    values: dict[bytes, bytes]

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.order, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.order[bisect_left(self.order, key)]


class _Versions(NamedTuple):
    order: list[int]
    values: dict[int, bytes]


class _Versioned(NamedTuple):
    order: list[bytes]
    versions: dict[bytes, _Versions]

    def put(self, key: bytes, seq: int, value: bytes) -> None:
        if key not in self.versions:
            insort(self.order, key)
            self.versions[key] = _Versions([], {})
        order, values = self.versions[key]
        if seq not in values:
            insort(order, seq)
        values[seq] = value

    def delete(self, key: bytes, seq: int) -> None:
        found = self.versions.get(key)
        if found is None or found.values.pop(seq, None) is None:
            return
        found.order.remove(seq)
        if not found.order:
            del self.versions[key]
            del self.order[bisect_left(self.order, key)]


class MemoryStore:
    """A `Store` that lives as long as this object. Paths given to `branch` are not used."""

    def __init__(self, path: str = "in memory") -> None:
        self.path = path
        self._closed = False
        self._plain = FamilyTable({family: _Plain([], {}) for family in PLAIN})
        self._versioned = FamilyTable({family: _Versioned([], {}) for family in VERSIONED})

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.path)

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value."""
        self._check_open()
        return self._plain[family].values.get(key)

    def latest(self, family: Family, key: bytes) -> Version | None:
        """A versioned key's newest value."""
        return self.at(family, key, keys.SEQ_MAX)

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """A versioned key's newest value written at `seq` or before."""
        self._check_open()
        found = self._versioned[family].versions.get(key)
        index = 0 if found is None else bisect_right(found.order, seq)
        if found is None or index == 0:
            return None
        newest = found.order[index - 1]
        return Version(newest, found.values[newest])

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """A versioned key's values with `first <= seq <= last`, oldest first unless `reverse`."""
        self._check_open()
        found = self._versioned[family].versions.get(key)
        if found is None:
            return
        end = len(found.order) if last is None else bisect_right(found.order, last)
        chosen = found.order[bisect_left(found.order, first) : end]
        for seq in reversed(chosen) if reverse else chosen:
            self._check_open()
            yield Version(seq, found.values[seq])

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """A plain family's keys with `prefix`, in byte order, from `start` on."""
        return islice(self._scan(family, prefix, max(prefix, start or b"")), limit)

    def _scan(self, family: Family, prefix: bytes, start: bytes) -> Iterator[Entry]:
        self._check_open()
        order, values = self._plain[family]
        for key in order[bisect_left(order, start) :]:
            self._check_open()
            if not key.startswith(prefix):
                return
            if key in values:  # not deleted meanwhile
                yield key, values[key]

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """The distinct keys of a versioned family with `prefix`, in byte order."""
        self._check_open()
        order = self._versioned[family].order
        for key in order[bisect_left(order, prefix) :]:
            self._check_open()
            if not key.startswith(prefix):
                return
            yield key

    def write(self, changes: Sequence[Put | Delete]) -> None:
        """Applies all or, when one cannot be written, none."""
        self._check_open()
        for change in changes:
            self._check(change)
        for change in changes:
            if isinstance(change, Delete) and change.seq is not None:
                self._versioned[change.family].delete(change.key, change.seq)
            elif isinstance(change, Delete):
                self._plain[change.family].delete(change.key)
            elif change.seq is None:
                self._plain[change.family].put(change.key, change.value)
            else:
                self._versioned[change.family].put(change.key, change.seq, change.value)

    def _check(self, change: Put | Delete) -> None:
        if change.seq is None:
            self._plain[change.family]
            return
        self._versioned[change.family]
        if not 0 <= change.seq <= keys.SEQ_MAX:
            raise ValueError(f"a put has a seq outside of 0..{keys.SEQ_MAX}: nothing was written")

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def branch(self, path: str, seq: int) -> Store:
        """A writable overlay, in memory too."""
        self._check_open()
        return Overlay(MemoryStore(path), self, seq, _new_layer)

    def entries(self, family: Family) -> Iterator[Entry]:
        """All of a family's keys, as a store on disk would keep them, and values in byte order."""
        if not family.versioned:
            yield from self.scan(family)
            return
        for key in self.keys(family):
            for seq, value in self.history(family, key):
                yield keys.versioned(key, seq), value

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over all families' keys and values in order, META keys in `skip` left out."""
        return digest_of(self, skip)

    def close(self) -> None:
        """Ends scans under way with a StoreError; the content is gone."""
        self._closed = True


def _new_layer(path: str, seq: int) -> MemoryStore:
    return MemoryStore(path)
