"""What stands between where a group has read to and where it is to go on: submissions passed over, places lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..ports.log import GroupState, Record, TopicPartition
from .deployment import Deployment
from .pending import pending_of, read_from


def known_offset(deployment: Deployment, group: GroupState, place: TopicPartition) -> int | None:
    """What a group has committed for a place; 0 where nobody has owned the partition yet, None where it is gone."""
    lifecycle = (deployment.topics.lifecycle, place[1])
    return group.offsets.get(place, 0 if deployment.log.bounds(*lifecycle)[1] == 0 else None)


def lost_of(deployment: Deployment, place: TopicPartition, offset: int | None) -> int:
    """How many offsets lie between a place and the nearest one that the log holds."""
    low, end = deployment.log.bounds(*place)
    return 0 if offset is None else max(0, low - offset, offset - end)


def submitted_between(deployment: Deployment, partition: int, start: int, end: int) -> Iterator[str]:
    """The ids of the jobs whose submissions stand on a partition from one offset up to another one."""
    topic = deployment.topics.jobs
    low, _ = deployment.log.bounds(topic, partition)
    if max(start, low) >= end:
        return
    for record in read_from(deployment, topic, partition, max(start, low)):
        if record.offset >= end:
            return
        pending = pending_of(deployment, record.value, partition, record.offset)
        yield pending.job_id if pending is not None else f"{topic}-p{partition}-{record.offset}"


def missing_commands(
    deployment: Deployment, committed: Mapping[TopicPartition, int], partitions: Iterable[int]
) -> dict[TopicPartition, int]:
    """Where the commands of those partitions go on whose committed place is not in the log.

    Behind the last command that was answered: none is carried out twice, and none that is there is passed over.
    """
    topic = deployment.topics.commands
    found = {}
    for partition in partitions:
        low, end = deployment.log.bounds(topic, partition)
        offset = committed.get((topic, partition))
        never_owned = deployment.log.bounds(deployment.topics.lifecycle, partition)[1] == 0
        if (offset is None and never_owned) or (offset is not None and low <= offset <= end):
            continue
        found[topic, partition] = low if offset is not None and offset < low else _answered(deployment, partition, low)
    return found


def _answered(deployment: Deployment, partition: int, low: int) -> int:
    lifecycle = deployment.topics.lifecycle
    start, _ = deployment.log.bounds(lifecycle, partition)
    answered = set()
    for record in read_from(deployment, lifecycle, partition, start):
        answered |= _command_ids(deployment, record)
    after = low
    for record in read_from(deployment, deployment.topics.commands, partition, low):
        if _command_ids(deployment, record) & answered:
            after = record.offset + 1
    return after


def _command_ids(deployment: Deployment, record: Record) -> set[str]:
    bodies: list[e.Body] = []
    with contextlib.suppress(UndecodableRecord):
        bodies = [event.body for event in deployment.codec.decode(record.value).events]
    found = (getattr(body, "command_id", None) or getattr(body, "request_id", None) for body in bodies)
    return {one for one in found if one is not None}
