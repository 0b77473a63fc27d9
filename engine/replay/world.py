"""What a replay reads of the past: the partition's state as of a position, as the engine's own working set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ..core import state as s
from ..core import values
from ..ports.store import Family, Version, View
from ..store.content import AsOf
from ..store.newest import COUNTS


class Place(NamedTuple):
    """Where a job is at home: its partition, and how many there are."""

    partition: int
    partitions: int


class Past(View):
    """A view as of `seq`, without what belongs to a live owner alone: indexes, timers, positions.

    `status` is the job's at that position: all that a branch counts.
    """

    def __init__(self, base: View, seq: int, status: str | None) -> None:
        self._base = AsOf(base, seq)
        self._counts = msgspec.msgpack.encode({} if status is None else {status: 1})

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value."""
        if family is Family.META and key == COUNTS:
            return self._counts
        return self._base.get(family, key) if family is Family.PAYLOADS else None

    def latest(self, family: Family, key: bytes) -> Version | None:
        """The newest value as of this view."""
        return self._base.latest(family, key)

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """The newest value as of `seq` or of this view, whichever is earlier."""
        return self._base.at(family, key, seq)

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """The values of `first..last` that this view has."""
        return self._base.history(family, key, first=first, last=last, reverse=reverse)

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Nothing: what a replay asks for it names."""
        return iter(())

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """Nothing: what a replay asks for it names."""
        return iter(())


def job_at(view: View, job_id: str, seq: int) -> s.JobState | None:
    """Where the job stood as of `seq`."""
    found = view.at(Family.JOBS, job_id.encode(), seq)
    return None if found is None else s.decode_job(found.value)


def request_digest_at(view: View, key: str, seq: int) -> str | None:
    """The request that an effect's key stood for as of `seq`."""
    found = view.at(Family.IDEMPOTENCY, key.encode(), seq)
    return None if found is None else s.decode_idempotency(found.value).request_digest


def source_state(aggregate: s.Aggregate, source: str) -> tuple[bool, object]:
    """What a cache of `source` stands for in an aggregate: its field of the source's name, else all of its fields.

    `(whether it exists, the value)`.
    """
    if aggregate.version == 0:
        return False, None
    return True, aggregate.data[source] if source in aggregate.data else dict(aggregate.data)


def shown(data: bytes | None) -> object:
    """Canonical bytes for display."""
    return None if data is None else values.plain(values.decode(data))
