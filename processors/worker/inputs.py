"""Where an owned partition's inputs go on, held against what its log still has.

No place is made up: where the committed one is gone, the partition stops and a person chooses, since going on at the
log's beginning or end would repeat or lose something without a word.
"""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core.names import Topics
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import committed_offsets, queued_rewinds


class InputLost(Exception):
    """The next input of a partition is not known or not in the log. Names the place, the offsets and the choices."""


def inputs_of(deployment: Deployment, partition: int, epoch: int) -> dict[str, int]:
    """The next offset of each input topic: the group's committed one, which an operator may have set.

    `epoch` is that of the partition's newest owner up to now, 0 where nobody has owned it yet: then nothing can have
    been committed, and its inputs begin at 0. Raises InputLost.
    """
    topics = deployment.topics
    committed = committed_offsets(deployment)
    found = {}
    for topic in (topics.jobs, topics.commands):
        place = (topic, partition)
        low, end = deployment.log.bounds(*place)
        offset = committed.get(place, 0 if epoch == 0 else None)
        why = _lost(offset, low, end)
        if why is not None or offset is None:
            bounds = f"committed {'none' if offset is None else offset}, start {low}, end {end}"
            raise InputLost(f"{topic} partition {partition}: {bounds}: {why}; {_choices(partition)}")
        found[topic] = offset
    if epoch == 0:
        _check_events(deployment, topics, partition, found[topics.jobs])
    return found


def _lost(offset: int | None, low: int, end: int) -> str | None:
    if offset is None:
        return "the partition was owned before, and its committed offset has expired or was deleted"
    if offset < low:
        return f"{low - offset} offsets were removed before they were read"
    if offset > end:
        return f"{offset - end} offsets that were read are gone: the log was cut or made anew"
    return None


def _check_events(deployment: Deployment, topics: Topics, partition: int, offset: int) -> None:
    """What was read and left no event is not known any more; unless an operator began behind it."""
    low, _ = deployment.log.bounds(topics.jobs, partition)
    if offset <= low or any(body.to_offset == offset for body in _rewinds(deployment, topics, partition)):
        return
    raise InputLost(
        f"{topics.lifecycle} partition {partition} has no owner's record, but its group has read {topics.jobs} up to "
        f"{offset}: the events are gone, the topic was cut or made anew; {_choices(partition)} "
        "(what is read again is taken in as new: it may run again)"
    )


def _rewinds(deployment: Deployment, topics: Topics, partition: int) -> list[e.RewindCommand]:
    low, _ = deployment.log.bounds(topics.commands, partition)
    return [body for body in queued_rewinds(deployment, partition, low) if body.input_topic == topics.jobs]


def _choices(partition: int) -> str:
    return (
        "restore the log, or stop the workers and choose where to go on: rewindq rewind worker "
        f"--partition {partition} --to earliest|latest|TIME --reason WHY"
    )
