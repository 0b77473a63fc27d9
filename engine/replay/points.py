"""Where a fork leaves the past: a step, version or time resolved to a position, at which no effect is half done."""

from __future__ import annotations

from typing import NamedTuple

from ..codec.avro import Codec
from ..core import state as s
from ..core.aggregate import aggregate_key
from ..core.position import Position
from ..core.times import parse_time
from ..ports.log import Log
from ..ports.store import Family, View
from ..runtime.recover import PartitionTopics
from .recording import Attempt, Recording, Step

#: Records looked at around a time: timestamps of one owner grow, those of two may cross by a little.
_AROUND_MS = 1000
_POLL = 500


class BadPoint(Exception):
    """The fork point does not exist or lies outside of the job; says which and what would do."""


class HalfDone(Exception):
    """An effect of the job is half done at the fork point. Names it and the nearest safe points."""

    def __init__(self, message: str, effect: str, before: str | None, after: str | None) -> None:
        super().__init__(message)
        self.effect = effect
        self.before = before
        self.after = after


class Wanted(NamedTuple):
    """A fork point as a person gives it; at most one is set. None of them: the attempt's beginning."""

    before: str | None = None
    at: str | None = None
    version: str | None = None
    time: str | None = None


class Base(NamedTuple):
    """A fork point: `seq` is the first event that the branch does not share with its parent."""

    position: Position
    attempt: Attempt

    @property
    def seq(self) -> int:
        """The first event that is the branch's own."""
        return self.position.seq


class Partition(NamedTuple):
    """What resolving a point may read."""

    view: View
    log: Log
    codec: Codec
    topics: PartitionTopics
    end: int


def resolve(recording: Recording, head: s.JobHead, wanted: Wanted, number: int | None, partition: Partition) -> Base:
    """The position of a fork point. Raises BadPoint, HalfDone, NoRecording."""
    if sum(value is not None for value in wanted) > 1:
        raise BadPoint("give one of --before, --at, --version and --time")
    seq = _seq_of(recording, head, wanted, number, partition)
    attempt = recording.attempt(number) if number is not None or seq is None else _attempt_at(recording, seq)
    started = attempt.started
    assert started is not None
    if seq is None:
        seq = started.seq
    _check_inside(recording, attempt, seq, partition.view, partition.end)
    check_half_done(recording, attempt, seq)
    return Base(Position(recording.partition, seq), attempt)


def _seq_of(
    recording: Recording, head: s.JobHead, wanted: Wanted, number: int | None, partition: Partition
) -> int | None:
    if wanted.before is not None:
        return _step(recording.attempt(number), wanted.before).first
    if wanted.at is not None:
        position = Position.parse(wanted.at)
        if position.partition != recording.partition:
            raise BadPoint(f"{wanted.at} is on another partition than the job, which is on p{recording.partition}")
        return position.seq
    if wanted.version is not None:
        return _version(head, wanted.version, partition.view)
    return None if wanted.time is None else _time(wanted.time, partition)


def _step(attempt: Attempt, name: str) -> Step:
    step = attempt.by_name.get(name)
    if step is None:
        known = ", ".join(step.name for step in attempt.steps) or "none"
        raise BadPoint(f"attempt {attempt.number} has no step {name!r}; its steps: {known}")
    return step


def _version(head: s.JobHead, text: str, view: View) -> int:
    """`N` of the job's resource, or `type/id@N`: the position right behind the write of that version."""
    name, mark, number = text.rpartition("@")
    kind, _, identity = name.partition("/")
    key = aggregate_key(kind, identity) if mark else head.resource
    if not number.isdecimal() or key is None:
        raise BadPoint(
            f"version {text!r} must be TYPE/ID@N, or N of the job's resource ({head.resource or 'it has none'})"
        )
    for version in view.history(Family.AGGREGATES, key.encode()):
        if s.decode_version(version.value).version == int(number):
            return version.seq + 1
    raise BadPoint(f"{key} has no version {number}")


def _time(text: str, partition: Partition) -> int:
    """The position behind the last event up to a time."""
    moment = parse_time(text)
    topics = partition.topics
    return min(_first_later(partition, topic, moment) for topic in (topics.lifecycle, topics.domain))


def _first_later(partition: Partition, topic: str, moment: int) -> int:
    """The number of a topic's first event after a moment, else the one behind the partition's last."""
    place = (topic, partition.topics.partition)
    low, end = partition.log.bounds(*place)
    start = max(low, partition.log.offset_at(*place, moment // 1000 - _AROUND_MS))
    reader = partition.log.reader({place: start})
    try:
        while reader.position(*place) < end:
            for record in reader.poll(_POLL, 1.0):
                decoded = partition.codec.decode(record.value)
                if decoded.seq >= 0 and decoded.timestamp > moment:
                    return decoded.seq
    finally:
        reader.close()
    return partition.end


def _attempt_at(recording: Recording, seq: int) -> Attempt:
    """The attempt that a position falls into: the last one that had begun, else the first."""
    begun = [a for a in recording.attempts.values() if a.started is not None and a.started.seq < seq]
    if begun:
        return max(begun, key=lambda attempt: attempt.number)
    return recording.attempt(min(recording.attempts, default=None))


def _check_inside(recording: Recording, attempt: Attempt, seq: int, view: View, limit: int) -> None:
    started, end = attempt.started, attempt.end
    accepted = recording.accepted
    assert started is not None
    if accepted is not None and seq <= accepted.seq:
        raise BadPoint(f"the job did not exist before {recording.position(accepted.seq + 1)}")
    if seq > limit:
        raise BadPoint(f"{recording.position(seq)} lies behind the log's end, which is {recording.position(limit)}")
    if end is not None and seq > end.seq:
        raise BadPoint(
            f"{recording.position(seq)} lies behind the end of attempt {attempt.number}; "
            f"fork from {recording.position(started.seq)} to {recording.position(end.seq)}"
        )
    if seq <= started.seq:
        job = view.at(Family.JOBS, recording.job_id.encode(), seq - 1)
        status = None if job is None else s.decode_job(job.value).status
        if status not in (s.WAITING, s.DELAYED, s.RETRYING):
            raise BadPoint(
                f"at {recording.position(seq)} the job is {status}, so attempt {attempt.number} cannot begin there"
            )


def check_half_done(recording: Recording, attempt: Attempt, seq: int) -> None:
    """Raises HalfDone when a call of the job is under way at the position."""
    step = _half_done(recording, attempt, seq)
    if step is None:
        return
    before, after = seq, seq
    while (found := _half_done(recording, attempt, before)) is not None:
        before = found.first
    safe_after: int | None = after
    while safe_after is not None and (found := _half_done(recording, attempt, safe_after)) is not None:
        safe_after = None if found.done_at is None else found.done_at + 1
    at_before = recording.position(before)
    at_after = None if safe_after is None else recording.position(safe_after)
    later = f"after it {at_after}" if at_after else "after it none, since its outcome was never recorded"
    raise HalfDone(
        f"effect {step.name!r} is half done at {recording.position(seq)}; "
        f"the nearest safe points: before it {at_before} (--before {step.name!r}), {later}",
        step.name,
        at_before,
        at_after,
    )


def _half_done(recording: Recording, attempt: Attempt, seq: int) -> Step | None:
    for number in sorted(recording.attempts):
        if number > attempt.number:
            break
        for step in recording.attempts[number].steps:
            if step.kind == "effect" and step.first < seq and (step.done_at is None or step.done_at >= seq):
                return step
    return None
