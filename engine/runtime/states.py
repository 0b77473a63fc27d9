"""An aggregate in the past: as of a position, a version or a time, and all its versions."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import state as s
from ..core import values
from ..core.position import Position
from ..core.times import parse_time
from ..ports.store import Family, View
from ..store.newest import read_aggregate
from .moments import event_before
from .past import NotFound, Past


class When(NamedTuple):
    """A moment as a person gives it; none of them: now."""

    at: str | None = None
    version: int | None = None
    time: str | None = None


def resolve(past: Past, key: str, when: When) -> int | None:
    """The event as of which an aggregate is read; None: now. Raises NotFound, BadPosition, BadTime.

    A position is that of an event of the aggregate's home partition; the event itself is included.
    """
    home = past.home(key)
    if when.at is not None:
        position = Position.parse(when.at)
        if position.partition != home.partition:
            raise NotFound(f"{when.at} is on another partition than {key}, which is at home on p{home.partition}")
        if position.seq >= home.next_seq:
            last = f"the last event is p{home.partition}@{home.next_seq - 1}" if home.next_seq else "it has no events"
            raise NotFound(f"{when.at} lies behind the end of partition {home.partition}: {last}")
        return position.seq
    if when.version is not None:
        return version_seq(home.store, key, when.version)
    if when.time is not None:
        return event_before(past.deployment, home.topics, parse_time(when.time), home.next_seq)
    return None


def version_seq(view: View, key: str, number: int) -> int:
    """The position that wrote a version. Raises NotFound naming those that there are."""
    newest = view.latest(Family.AGGREGATES, key.encode())
    last = 0 if newest is None else s.decode_version(newest.value).version
    if 1 <= number <= last:
        for stored in view.history(Family.AGGREGATES, key.encode()):
            if s.decode_version(stored.value).version == number:
                return stored.seq
    raise NotFound(f"{key} has no version {number}: it has {f'1 to {last}' if last else 'none'}")


def aggregate_shown(view: View, partition: int, key: str, seq: int | None) -> dict[str, Any]:
    """An aggregate in INTERFACE's form; version 0 where it did not exist then. Raises NotFound if it never did."""
    found = read_aggregate(view, key, seq) if seq is None or seq >= 0 else s.NO_AGGREGATE
    if found.seq is None and view.latest(Family.AGGREGATES, key.encode()) is None:
        raise NotFound(f"there is no {key}, and never was")
    return {
        "key": key,
        "version": found.version,
        "position": None if found.seq is None else str(Position(partition, found.seq)),
        "data": values.plain(found.data),
        "writer": found.writer,
    }


def history_shown(view: View, partition: int, key: str, seq: int | None) -> list[dict[str, Any]]:
    """An aggregate's versions up to an event, oldest first. Raises NotFound if it never existed."""
    versions = []
    for stored in view.history(Family.AGGREGATES, key.encode(), last=seq):
        version = s.decode_version(stored.value)
        versions.append(
            {
                "version": version.version,
                "parent": version.version - 1,
                "position": str(Position(partition, stored.seq)),
                "changes": values.plain(values.decode(version.changes)),
                "deleted": list(version.deleted),
                "job_id": version.job_id,
                "attempt": version.attempt,
                "step": version.step,
                "fencing_token": version.token,
                "reverted": _reverted(version.reverted),
            }
        )
    if not versions and view.latest(Family.AGGREGATES, key.encode()) is None:
        raise NotFound(f"there is no {key}, and never was")
    return versions


def _reverted(told: s.Reverted | None) -> dict[str, Any] | None:
    """Of a version that takes changes of its job back: who asked for it and why; `attempt` None: of all attempts."""
    if told is None:
        return None
    return {"by": told.actor, "reason": told.reason, "attempt": told.attempt, "command_id": told.command_id}
