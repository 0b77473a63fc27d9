"""Setting a stopped processor group's offsets: where its partitions are to go on reading."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..core import events as e
from ..core.events.inputs import NOTHING_COMMITTED
from ..core.position import BadPosition, Position
from ..core.times import BadTime, parse_time
from ..ports.log import Append, GroupActive, GroupState, TopicPartition
from .commands import command_append, command_record, operator
from .deployment import Deployment
from .ids import new_id
from .passing import known_offset, lost_of, missing_commands, submitted_between
from .past import NotFound
from .pending import read_from

_SHOWN = 10
EARLIEST = "earliest"
LATEST = "latest"


class SkipNotAgreed(Exception):
    """Submissions would be passed over for good, and nobody has agreed to it. Names them."""


class Rewound(NamedTuple):
    """A group's offsets before (None: nothing committed) and after, of the places that are set.

    `members` run now. `skipped` are the jobs whose submissions are passed over unread, `lost` says of places how many
    offsets the log does not hold any more.
    """

    group: str
    before: dict[TopicPartition, int | None]
    after: dict[TopicPartition, int]
    members: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    lost: Mapping[TopicPartition, int] = MappingProxyType({})


def plan_rewind(deployment: Deployment, name: str, to: str, partitions: Collection[int] | None = None) -> Rewound:
    """What `rewind` would set. `to` is earliest, latest, a position or a time; `name` may leave the namespace out.

    A position sets its partition alone: back to the submission that was taken in last at or before it. The worker's
    commands topic is left as it is, so that no command is carried out twice; where its own place is gone, it goes on
    behind the last command that was answered. `partitions` sets these alone. While members run, their offsets go on
    moving, and `rewind` refuses. Raises NotFound, BadTime.
    """
    group = _group(deployment, name)
    worker = group.name == deployment.group
    jobs = deployment.topics.jobs
    read = [(jobs, partition) for partition in range(deployment.partitions)] if worker else sorted(group.offsets)
    if to not in (EARLIEST, LATEST) and partitions is None and (position := _position(to)) is not None:
        partitions = [position.partition]
    places = _of_partitions(group.name, read, partitions)
    after = {place: _target(deployment, place, to) for place in places}
    if worker:
        after |= missing_commands(deployment, group.offsets, [partition for _, partition in places])
    before = {place: known_offset(deployment, group, place) for place in after}
    skipped = [
        job_id
        for (topic, partition), offset in before.items()
        if topic == jobs and offset is not None
        for job_id in submitted_between(deployment, partition, offset, after[topic, partition])
    ]
    lost = {place: count for place, offset in before.items() if (count := lost_of(deployment, place, offset))}
    return Rewound(group.name, before, after, tuple(group.members), tuple(skipped), lost)


def _of_partitions(group: str, read: list[TopicPartition], partitions: Collection[int] | None) -> list[TopicPartition]:
    if partitions is None:
        return read
    for partition in partitions:
        if partition not in {number for _, number in read}:
            raise NotFound(f"group {group} reads no partition {partition}")
    return [place for place in read if place[1] in partitions]


def rewind(deployment: Deployment, planned: Rewound, reason: str, *, skip: bool = False) -> None:
    """Sets the offsets, and tells each of the worker's partitions that moves, in one step.

    `skip` agrees to what is passed over. Raises SkipNotAgreed; GroupActive while the group has members; OffsetsMoved
    when another operator was faster; AppendRefused, OutcomeUnknown.
    """
    if planned.members:
        members = ", ".join(planned.members)
        raise GroupActive(f"group {planned.group} is running ({members}): stop its members first")
    if planned.skipped and not skip:
        shown = ", ".join(planned.skipped[:_SHOWN]) + (", …" if len(planned.skipped) > _SHOWN else "")
        raise SkipNotAgreed(
            f"{len(planned.skipped)} submitted jobs would never be taken in ({shown}): say --skip to agree; "
            "--dry-run lists them all"
        )
    moved = [place for place, offset in planned.after.items() if offset != planned.before[place]]
    tells = [_told(deployment, planned, place, reason) for place in moved if planned.group == deployment.group]
    committed = _group(deployment, planned.group).offsets if planned.group == deployment.group else {}
    expected = {place: before if place in committed else None for place, before in planned.before.items()}
    deployment.log.set_offsets(planned.group, planned.after, expected=expected if tells else None, appends=tells)


def _told(deployment: Deployment, planned: Rewound, place: TopicPartition, reason: str) -> Append:
    """The command with which a partition's next owner records that it begins elsewhere."""
    topic, partition = place
    before = planned.before[place]
    command_id = new_id(deployment.clock)
    from_offset = NOTHING_COMMITTED if before is None else before
    offset = planned.after[place]
    body = e.RewindCommand(command_id, reason, operator(), planned.group, topic, from_offset, offset)
    record = command_record(deployment, f"rewind-{command_id}", e.Event(body))
    return command_append(deployment, partition, record)


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
