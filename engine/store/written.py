"""An aggregate's versions since a job first came to its partition: what its revert is decided from."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import state as s
from ..ports.store import Family, View
from .newest import read_aggregate
from .reverts import FreshVersions


class Written(NamedTuple):
    """An aggregate's fields before a job could change them, and all its versions since as `(seq, version)`."""

    before: dict[str, Any]
    versions: list[tuple[int, s.AggregateVersion]]


def written_since(view: View, fresh: FreshVersions | None, job_id: str, key: str) -> Written:
    """What has become of an aggregate since the first event about a job on its partition.

    The store may be written meanwhile: what is `fresh` is taken first, so nothing is missed in between.
    """
    unstored = [] if fresh is None else fresh.of(key)
    trace = view.scan(Family.TRACES, job_id.encode() + b"\0", limit=1)
    first = next((int.from_bytes(raw[-8:], "big") for raw, _ in trace), None)
    if first is None:
        # Nothing about the job is stored: what it has changed is all fresh.
        first = unstored[0][0] if unstored else 0
    before = read_aggregate(view, key, first - 1) if first else s.NO_AGGREGATE
    stored = view.history(Family.AGGREGATES, key.encode(), first=first)
    versions = {version.seq: s.decode_version(version.value) for version in stored}
    versions.update((seq, version) for seq, version in unstored if seq >= first)
    return Written(before.data, sorted(versions.items(), key=lambda entry: entry[0]))
