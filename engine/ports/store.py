"""The store port: a copy-on-write map of one (branch, partition), keyed by position in the log.

Families hold *plain* keys (one value, overwritten or deleted) or *versioned* keys (every value kept, keyed by the
`seq` of the log record that wrote it). Reading a versioned key as of a position is one seek.

The store is a cache of the log: it changes only by `write`, whose one atomic batch also holds the positions it
reflects, and it may be lost at any time at the price of a rebuild.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec


class Family(StrEnum):
    """The store's column families.

    JOBS, LEASES, IDEMPOTENCY, AGGREGATES, QUARANTINES and SCHEDULES are versioned, the rest plain.
    """

    JOBS = "jobs"
    PAYLOADS = "payloads"
    READY = "ready"
    TIMERS = "timers"
    RUNNING = "running"
    LEASES = "leases"
    LENT = "lent"
    IDEMPOTENCY = "idempotency"
    AGGREGATES = "aggregates"
    TRACES = "traces"
    META = "meta"
    QUARANTINES = "quarantines"
    SCHEDULES = "schedules"
    MARKS = "marks"

    # Enum's own hash is a Python call, and families are looked up for every value that is read or written.
    __hash__ = str.__hash__

    @property
    def versioned(self) -> bool:
        """Whether keys of this family keep every value by position."""
        return self in _VERSIONED


_VERSIONED = frozenset(
    {Family.JOBS, Family.LEASES, Family.IDEMPOTENCY, Family.AGGREGATES, Family.QUARANTINES, Family.SCHEDULES}
)


class StoreError(Exception):
    """Base of what a store raises on purpose; the message names the folder and the next step."""


class StoreInUse(StoreError):
    """Another process has the store open for writing; names it where known."""


class StoreDamaged(StoreError):
    """The store cannot be read; it may be set aside and rebuilt from the log."""


class StoreFormat(StoreError):
    """The folder was written by a newer format; it is left untouched."""


class Put(msgspec.Struct, frozen=True, gc=False):
    """One value to write. `seq` is set for versioned families and None for plain ones."""

    family: Family
    key: bytes
    value: bytes
    seq: int | None = None


class Delete(msgspec.Struct, frozen=True, gc=False):
    """One plain key to remove or, with `seq`, the value that was written there under a versioned key.

    A branch removes values of its own only.
    """

    family: Family
    key: bytes
    seq: int | None = None


class Version(NamedTuple):
    """A versioned key's value and the position that wrote it."""

    seq: int
    value: bytes


class View(Protocol):
    """Read access, as of a position or of now."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value (always of now)."""
        ...

    def latest(self, family: Family, key: bytes) -> Version | None:
        """A versioned key's newest value within this view."""
        ...

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """A versioned key's newest value written at `seq` or before (and within this view)."""
        ...

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """A versioned key's values with `first <= seq <= last`, oldest first unless `reverse`."""
        ...

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """A plain family's keys with `prefix`, in byte order, from `start` on."""
        ...

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """The distinct keys of a versioned family with `prefix`, in byte order, that exist within this view."""
        ...


class Store(View, Protocol):
    """A writable store: `View` of now, plus writing and branching."""

    def write(self, changes: Sequence[Put | Delete]) -> None:
        """Applies all in one atomic batch, in order. The caller puts its positions into META in the same batch."""
        ...

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        ...

    def branch(self, path: str, seq: int) -> Store:
        """A writable overlay in its own folder, reading through to this store as of `seq`. Copies nothing."""
        ...

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over all families' keys and values in order, META keys in `skip` left out."""
        ...

    def close(self) -> None:
        """Ends open iterators cleanly and frees the folder."""
        ...
