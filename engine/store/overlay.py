"""A branch: a store of its own that reads through to its base as of the position it left from.

Versioned families merge both sides: the base gives exactly what it held at that position, however far it has
gone on. Plain families have no history: PAYLOADS, TRACES and MARKS show what the base holds now beneath the branch's
own puts and deletions; READY, TIMERS, RUNNING and META belong to the branch alone and start empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import TypeVar

from ..ports.store import Delete, Family, Put, Store, Version, View
from .content import AsOf, Contents, Entry, OwnStore, digest_of

K = TypeVar("K", int, bytes)

#: Makes the empty store of a branch: its folder and the position it leaves from.
NewLayer = Callable[[str, int], OwnStore]

READ_THROUGH = frozenset({Family.PAYLOADS, Family.TRACES, Family.MARKS})
# In these the branch's own values start with a byte that tells a value from a deletion.
_VALUE, _DELETED = b"\x01", b"\x00"


class OverlayView:
    """`own` over `base` as of `seq`. Both may be written by another process meanwhile."""

    def __init__(self, own: View, base: View, seq: int) -> None:
        self._own = own
        self._base = AsOf(base, seq)
        self._seq = seq

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value."""
        own = self._own.get(family, key)
        if family not in READ_THROUGH:
            return own
        return self._base.get(family, key) if own is None else _shown(own)

    def latest(self, family: Family, key: bytes) -> Version | None:
        """The newest value of both sides; the branch's own where both have one of the same position."""
        own = self._own.latest(family, key)
        return own if own is not None and own.seq >= self._seq else _newer(own, self._base.latest(family, key))

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """The newest value of both sides written at `seq` or before."""
        own = self._own.at(family, key, seq)
        return own if own is not None and own.seq >= self._seq else _newer(own, self._base.at(family, key, seq))

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """The values of both sides in one order."""
        sides = (
            ((version.seq, version.value) for version in side)
            for side in (
                self._own.history(family, key, first=first, last=last, reverse=reverse),
                self._base.history(family, key, first=first, last=last, reverse=reverse),
            )
        )
        return (Version(seq, value) for seq, value in _merged(*sides, reverse=reverse))

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """A plain family's keys of both sides in one order."""
        if family not in READ_THROUGH:
            return self._own.scan(family, prefix, start=start, limit=limit)
        own = ((key, _shown(value)) for key, value in self._own.scan(family, prefix, start=start))
        sides = _merged(own, self._base.scan(family, prefix, start=start))
        return islice(((key, value) for key, value in sides if value is not None), limit)

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """The distinct keys of both sides in byte order."""
        own = ((key, None) for key in self._own.keys(family, prefix))
        base = ((key, None) for key in self._base.keys(family, prefix))
        return (key for key, _ in _merged(own, base))


class Overlay(OverlayView):
    """A branch open for writing. `new_layer` makes the folders of branches that leave from this one."""

    def __init__(self, own: OwnStore, base: View, seq: int, new_layer: NewLayer) -> None:
        super().__init__(own, base, seq)
        self._store = own
        self._new_layer = new_layer

    def write(self, changes: Sequence[Put | Delete]) -> None:
        """Applies all to the branch in one atomic batch, in order."""
        self._store.write([_marked(change) if change.family in READ_THROUGH else change for change in changes])

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def branch(self, path: str, seq: int) -> Store:
        """A branch of this branch, in the new folder `path`."""
        return Overlay(self._new_layer(path, seq), self, seq, self._new_layer)

    def entries(self, family: Family) -> Iterator[Entry]:
        """The branch's own content; what it deleted of its base is not part of it."""
        return own_entries(self._store, family)

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over the branch's own content, META keys in `skip` left out."""
        return digest_of(self, skip)

    def close(self) -> None:
        """Closes the branch's own store; the base stays open."""
        self._store.close()


def own_entries(own: Contents, family: Family) -> Iterator[Entry]:
    """A branch's own content as its readers see it."""
    entries = own.entries(family)
    if family not in READ_THROUGH:
        return entries
    shown = ((key, _shown(value)) for key, value in entries)
    return ((key, value) for key, value in shown if value is not None)


def _shown(own: bytes) -> bytes | None:
    return None if own == _DELETED else own[1:]


def _marked(change: Put | Delete) -> Put:
    value = _DELETED if isinstance(change, Delete) else _VALUE + change.value
    return Put(change.family, change.key, value)


def _newer(own: Version | None, base: Version | None) -> Version | None:
    if own is None or base is None:
        return own or base
    return own if own.seq >= base.seq else base


T = TypeVar("T")


def _merged(own: Iterable[tuple[K, T]], base: Iterable[tuple[K, T]], *, reverse: bool = False) -> Iterator[tuple[K, T]]:
    """Both sides by key; of equal keys the branch's own, which `merge` gives first."""
    before: K | None = None
    for key, value in merge(own, base, key=lambda item: item[0], reverse=reverse):
        if key != before:
            yield key, value
        before = key
