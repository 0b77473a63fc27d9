"""Submissions that stand on the jobs topic and were not taken in yet: jobs that wait where no store shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..ports.log import Record
from .deployment import Deployment

_CHUNK = 2000


class Pending(NamedTuple):
    """A submission at an offset of the jobs topic. `submitted_at` microseconds."""

    job_id: str
    partition: int
    offset: int
    key: str
    submitted_at: int
    trace_id: str | None
    body: e.JobSubmitted


def read_pending(deployment: Deployment, job_id: str | None = None) -> list[Pending]:
    """What is submitted behind the worker group's committed offsets, of one job where named.

    Read this before folding: what a worker takes in meanwhile then shows up in both, and never in neither.
    """
    topic = deployment.topics.jobs
    committed = committed_offsets(deployment)
    found = []
    for partition in range(deployment.partitions):
        low, _ = deployment.log.bounds(topic, partition)
        start = max(low, committed.get((topic, partition), low))
        for record in read_from(deployment, topic, partition, start):
            pending = _pending(deployment, record)
            if pending is not None and job_id in (None, pending.job_id):
                found.append(pending)
    return found


def committed_offsets(deployment: Deployment) -> dict[tuple[str, int], int]:
    """The worker group's committed offsets by (topic, partition); empty when it never ran."""
    states = {state.name: state for state in deployment.log.groups(deployment.group)}
    return states[deployment.group].offsets if deployment.group in states else {}


def queued_rewinds(deployment: Deployment, partition: int, start: int) -> list[e.RewindCommand]:
    """The rewind commands on a partition's commands topic from an offset on."""
    found = []
    for record in read_from(deployment, deployment.topics.commands, partition, start):
        with contextlib.suppress(UndecodableRecord):  # its owner parks it when its turn comes
            bodies = (event.body for event in deployment.codec.decode(record.value).events)
            found += [body for body in bodies if isinstance(body, e.RewindCommand)]
    return found


def read_from(deployment: Deployment, topic: str, partition: int, start: int) -> Iterator[Record]:
    """A partition's records from an offset to its present end."""
    _, end = deployment.log.bounds(topic, partition)
    if start >= end:
        return
    reader = deployment.log.reader({(topic, partition): start})
    try:
        while reader.position(topic, partition) < end:
            yield from reader.poll(_CHUNK, 1.0)
    finally:
        reader.close()


def _pending(deployment: Deployment, record: Record) -> Pending | None:
    """The submission in a record; None for what cannot become a job, which a worker will put under investigation."""
    return pending_of(deployment, record.value, record.partition, record.offset)


def pending_of(deployment: Deployment, value: bytes | None, partition: int, offset: int) -> Pending | None:
    """The submission in a record's bytes; None for what cannot become a job."""
    try:
        decoded = deployment.codec.decode(value)
    except UndecodableRecord:
        return None
    body = decoded.events[0].body if decoded.events else None
    if not isinstance(body, e.JobSubmitted) or not decoded.job_id:
        return None
    key = body.key or decoded.job_id
    return Pending(decoded.job_id, partition, offset, key, decoded.timestamp, decoded.trace_id, body)
