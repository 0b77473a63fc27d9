"""Writes of an aggregate's fields: made on the expected version, or refused with what was found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import events as e
from . import state as s
from . import values
from .aggregate import split_changes
from .sizes import STEP_MAX, too_large


class SaveRequest(NamedTuple):
    """A write of fields. `token` is the fencing token under which the attempt holds `token_resource`."""

    key: str
    step: str
    changes: Mapping[str, object]
    expected: int
    token: int | None


def encode_changes(changes: Mapping[str, object]) -> tuple[bytes, tuple[str, ...]]:
    """The fields to set as bytes, and those to remove. Raises values.ValueRefused, also for what is too large."""
    fields, deleted = split_changes(dict(changes))
    data = values.encode(fields)
    size = len(data) + sum(map(len, deleted))
    if size > STEP_MAX:
        raise values.ValueRefused("", too_large("what is saved", size, STEP_MAX))
    return data, deleted


class SaveRefused(NamedTuple):
    """Not written; the event, a `WriteFenced` or `WriteConflict`, says why. `current` is the newest version."""

    event: e.Event
    current: int

    @property
    def fenced(self) -> bool:
        """Whether the token is stale, else the version is."""
        return isinstance(self.event.body, e.WriteFenced)

    @property
    def reason(self) -> str:
        """Why, for people."""
        return write_refusal(self.event.body)


def write_refusal(body: e.Body) -> str:
    """What a `WriteFenced` or `WriteConflict` means, for people."""
    return f"{body.writer} has written since" if isinstance(body, e.WriteConflict) else "the fencing token is stale"


def decide_save(
    current: s.Aggregate, lease: s.Lease | None, request: SaveRequest, writer: str | None
) -> e.Event | SaveRefused:
    """A `StateChanged` on the expected version, or the refusal as an event of its own.

    `lease` is the newest grant of the aggregate's own key where there is one. Raises values.ValueRefused.
    """
    if lease is not None and request.token is not None and request.token < lease.token:
        fenced = e.WriteFenced(request.token, lease.token, request.expected)
        event = e.Event(
            fenced,
            step=request.step,
            status="fail",
            resource=request.key,
            resource_version=current.version,
            fencing_token=request.token,
        )
        return SaveRefused(event, current.version)
    if current.version != request.expected:
        conflict = e.WriteConflict(request.expected, current.version, writer)
        event = e.Event(
            conflict, step=request.step, status="fail", resource=request.key, resource_version=current.version
        )
        return SaveRefused(event, current.version)
    return e.Event(
        e.StateChanged(current.version, *encode_changes(request.changes)),
        step=request.step,
        resource=request.key,
        resource_version=current.version + 1,
        fencing_token=request.token,
    )
