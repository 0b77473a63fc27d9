"""Setting a stopped processor group's offsets: where its partitions are to go on reading."""

from __future__ import annotations

from typing import NamedTuple

from ..core import events as e
from ..core.position import BadPosition, Position
from ..core.times import BadTime, parse_time
from ..ports.log import GroupActive, GroupState, TopicPartition
from .commands import append_command, operator
from .deployment import Deployment
from .ids import new_id
from .past import NotFound
from .pending import read_from

EARLIEST = "earliest"
LATEST = "latest"


class Rewound(NamedTuple):
    """A group's offsets before and after, of the places that are set, and the members that run now."""

    group: str
    before: dict[TopicPartition, int]
    after: dict[TopicPartition, int]
    members: tuple[str, ...] = ()


def plan_rewind(deployment: Deployment, name: str, to: str) -> Rewound:
    """What `rewind` would set. `to` is earliest, latest, a position or a time; `name` may leave the namespace out.

    A position sets its partition alone: back to the submission that was taken in last at or before it. The worker's
    commands topic is left as it is, so that no command is carried out twice. While members run, their offsets go on
    moving, and `rewind` refuses. Raises NotFound, BadTime.
    """
    group = _group(deployment, name)
    if group.name == deployment.group:
        places = [(deployment.topics.jobs, partition) for partition in range(deployment.partitions)]
    else:
        places = sorted(group.offsets)
    if to not in (EARLIEST, LATEST) and (position := _position(to)) is not None:
        places = [(topic, partition) for topic, partition in places if partition == position.partition]
        if not places:
            raise NotFound(f"group {group.name} reads no partition {position.partition}")
    before = {place: group.offsets.get(place, deployment.log.bounds(*place)[0]) for place in places}
    after = {place: _target(deployment, place, to) for place in places}
    return Rewound(group.name, before, after, tuple(group.members))


def rewind(deployment: Deployment, planned: Rewound, reason: str) -> None:
    """Sets the offsets, and records it for the worker's group in the trace of each partition that moves.

    Raises GroupActive while the group has members, AppendRefused, OutcomeUnknown.
    """
    if planned.members:
        members = ", ".join(planned.members)
        raise GroupActive(f"group {planned.group} is running ({members}): stop its members first")
    deployment.log.set_offsets(planned.group, planned.after)
    if planned.group != deployment.group:
        return
    for (topic, partition), offset in planned.after.items():
        before = planned.before[topic, partition]
        if offset != before:
            command_id = new_id(deployment.clock)
            body = e.RewindCommand(command_id, reason, operator(), planned.group, topic, before, offset)
            append_command(deployment, partition, f"rewind-{command_id}", body)


def _group(deployment: Deployment, name: str) -> GroupState:
    """A group of the namespace; the worker's exists as soon as the topics do."""
    prefix = f"{deployment.settings.namespace}."
    known = {group.name: group for group in deployment.log.groups(prefix)}
    if deployment.partitions:
        known.setdefault(deployment.group, GroupState(deployment.group, (), {}))
    group = known.get(name) or known.get(prefix + name)
    if group is None:
        raise NotFound(f"no group {name!r}: there are {', '.join(sorted(known))}")
    return group


def _position(text: str) -> Position | None:
    """The position in a text; None for a time. Raises BadTime for neither."""
    try:
        return Position.parse(text)
    except BadPosition:
        try:
            parse_time(text)
        except BadTime as error:
            raise BadTime(f"{text!r} is none of earliest, latest, p<partition>@<seq> and an RFC 3339 time") from error
    return None


def _target(deployment: Deployment, place: TopicPartition, to: str) -> int:
    low, end = deployment.log.bounds(*place)
    if to in (EARLIEST, LATEST):
        return low if to == EARLIEST else end
    position = _position(to)
    if position is not None:
        return max(low, _taken_in(deployment, position))
    # A record of the very millisecond may be a little older: it is read again rather than passed over.
    return max(low, deployment.log.offset_at(*place, parse_time(to) // 1000))


def _taken_in(deployment: Deployment, position: Position) -> int:
    """The jobs offset that was taken in last at or before a position. Raises NotFound."""
    topic = deployment.topics.lifecycle
    low, _ = deployment.log.bounds(topic, position.partition)
    found: int | None = None
    for record in read_from(deployment, topic, position.partition, low):
        decoded = deployment.codec.decode(record.value)
        for seq, event in enumerate(decoded.events, decoded.seq):
            if decoded.seq != e.UNNUMBERED and seq > position.seq:
                break
            offset = _source(deployment, event.body)
            if offset is not None:
                found = offset
        if decoded.seq != e.UNNUMBERED and decoded.seq > position.seq:
            break
    if found is None:
        raise NotFound(f"nothing was taken in on partition {position.partition} up to {position}: use earliest")
    return found


def _source(deployment: Deployment, body: e.Body) -> int | None:
    if isinstance(body, e.MovedToInvestigation) and body.source_topic != deployment.topics.jobs:
        return None
    return getattr(body, "source_offset", None)
