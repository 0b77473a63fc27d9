"""What every store shares: which families it has, how its content is hashed, and a view as of a position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Protocol, TypeVar

from ..ports.store import Family, Store, Version, View

T = TypeVar("T")
Entry = tuple[bytes, bytes]

PLAIN = tuple(family for family in Family if not family.versioned)
VERSIONED = tuple(family for family in Family if family.versioned)


class FamilyTable(dict[Family, T]):
    """What a store keeps for each plain, or for each versioned family; the other kind is refused by name."""

    def __missing__(self, family: Family) -> T:
        if family in VERSIONED:
            raise ValueError(f"{family} is versioned: read it with latest, at, history or keys, put it with a seq")
        raise ValueError(f"{family} is plain: read it with get or scan, put it without a seq, or delete")


class Contents(Protocol):
    """A store's own content, in order."""

    def entries(self, family: Family) -> Iterator[Entry]:
        """Stored keys and values in byte order; versioned keys as `keys.versioned` makes them."""
        ...


class OwnStore(Store, Contents, Protocol):
    """A store that shows its own content, as an overlay keeps it."""


def digest_of(contents: Contents, skip: Sequence[bytes]) -> str:
    """SHA-256 over (family, key length, key, value length, value) of all entries but META keys in `skip`."""
    digest = sha256()
    skipped = frozenset(skip)
    for family in Family:
        name = family.encode() + b"\0"
        for key, value in contents.entries(family):
            if family is Family.META and key in skipped:
                continue
            digest.update(b"".join((name, len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value)))
    return digest.hexdigest()


class AsOf:
    """A view of `base` as of a position. Plain families have no history: they show what they hold now."""

    def __init__(self, base: View, seq: int) -> None:
        self._base = base
        self._seq = seq

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value, of now."""
        return self._base.get(family, key)

    def latest(self, family: Family, key: bytes) -> Version | None:
        """The newest value as of this view."""
        return self._base.at(family, key, self._seq)

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """The newest value as of `seq` or of this view, whichever is earlier."""
        return self._base.at(family, key, min(seq, self._seq))

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """The values of `first..last` that this view has."""
        last = self._seq if last is None else min(last, self._seq)
        return self._base.history(family, key, first=first, last=last, reverse=reverse)

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """A plain family's keys, of now."""
        return self._base.scan(family, prefix, start=start, limit=limit)

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """The keys that had been written as of this view."""
        return (key for key in self._base.keys(family, prefix) if self.latest(family, key) is not None)
