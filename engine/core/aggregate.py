"""Aggregates: versions as field-level deltas, with a full snapshot every few versions so that reads stay bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import state as s
from . import values
from .events import StateChanged, StateReverted
from .evolve import FoldError, Moment

#: A full snapshot every so many versions: any version is read from at most this many stored records.
SNAPSHOT_EVERY = 16


class Deleted:
    """The type of `DELETE`, which removes a field in `ctx.save`."""

    def __repr__(self) -> str:
        return "DELETE"


DELETE = Deleted()


def aggregate_key(kind: str, identity: str) -> str:
    """`type:id`. Types hold no colon, so that a key has one reading.

    Raises ValueError naming what is wrong.
    """
    if not kind or ":" in kind or "\0" in kind:
        raise ValueError(f"aggregate type {kind!r} must be a non-empty name without ':' or NUL")
    if not identity or "\0" in identity:
        raise ValueError(f"id of {kind!r} must be a non-empty text without NUL, got {identity!r}")
    return f"{kind}:{identity}"


def split_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Field changes as given to `save` -> (fields to set, fields to remove in sorted order)."""
    fields = {name: value for name, value in changes.items() if value is not DELETE}
    return fields, tuple(sorted(name for name, value in changes.items() if value is DELETE))


def apply_changes(data: dict[str, Any], changes: bytes, deleted: Iterable[str]) -> dict[str, Any]:
    """The fields after a delta."""
    after = {**data, **values.decode(changes)}
    for name in deleted:
        after.pop(name, None)
    return after


def evolve_aggregate(
    before: s.Aggregate, body: StateChanged | StateReverted, version: int, at: Moment
) -> tuple[s.Aggregate, s.AggregateVersion]:
    """The aggregate after a change, and the version to store. Raises FoldError when `body.parent` is not current."""
    if body.parent != before.version or version != before.version + 1:
        raise FoldError(f"version {version} on {body.parent} at seq {at.seq} cannot follow version {before.version}")
    data = apply_changes(before.data, body.changes, body.deleted)
    full = (version - 1) % SNAPSHOT_EVERY == 0
    snapshot_seq = at.seq if full else before.snapshot_seq
    reverted = None
    if isinstance(body, StateReverted):
        reverted = s.Reverted(body.reason, body.actor, body.command_id, body.attempt)
    stored = s.AggregateVersion(
        version=version,
        parent_seq=before.seq,
        snapshot_seq=snapshot_seq,
        job_id=at.job_id,
        step=at.step,
        token=at.token,
        changes=body.changes,
        deleted=body.deleted,
        snapshot=values.encode(data) if full and version > 1 else None,
        attempt=at.attempt,
        reverted=reverted,
    )
    return s.Aggregate(version, at.seq, snapshot_seq, data, stored.writer), stored


def rebuild(stored: list[tuple[int, s.AggregateVersion]]) -> s.Aggregate:
    """The aggregate from its stored versions `(seq, version)`, oldest first, beginning with a snapshot."""
    if not stored:
        return s.NO_AGGREGATE
    first = stored[0][1]
    data: dict[str, Any] = {}
    if first.snapshot is not None:
        data = values.decode(first.snapshot)
    else:
        data = apply_changes({}, first.changes, first.deleted)
    for _, version in stored[1:]:
        data = apply_changes(data, version.changes, version.deleted)
    seq, last = stored[-1]
    return s.Aggregate(last.version, seq, last.snapshot_seq, data, last.writer)
