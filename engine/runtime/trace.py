"""A job's trace: its submission and all events about it, in log order; and its attempts as told by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..core import values
from ..ports.blobs import BlobMissing
from ..ports.log import LogDamaged, Record
from .deployment import Deployment
from .past import FoundJob, NotFound, Past, read_at
from .show import event_shown, payload_shown, time_or_none, time_shown, value_shown

#: Events that end an attempt, with how they are told.
_ENDS: dict[type[e.Body], str] = {
    e.JobSucceeded: "succeeded",
    e.AttemptFailed: "failed",
    e.AttemptLost: "lost",
    e.AttemptHandedBack: "handed back",
    e.JobCancelled: "cancelled",
    e.MovedToInvestigation: "investigation",
}


class TraceRecord(NamedTuple):
    """A record of a trace and where it stands."""

    topic: str
    partition: int
    offset: int
    record: e.EventRecord


def read_trace(past: Past, job_id: str) -> tuple[FoundJob, list[TraceRecord]]:
    """The job and its records in log order, its submission first where it is still kept.

    Raises NotFound, LogDamaged.
    """
    found = past.find(job_id)
    deployment = past.deployment
    records = _submission(deployment, found)
    if past.accepted(job_id) is not None:
        pointers = list(past.partition(found.partition).pointers(job_id))
        own = sorted(_decoded(deployment, found.partition, pointers), key=lambda entry: entry.record.seq)
        records += sorted([*own, *_elsewhere(past, job_id, own)], key=_happened)
    return found, records


def _elsewhere(past: Past, job_id: str, own: list[TraceRecord]) -> list[TraceRecord]:
    """What the homes of other resources recorded about the job."""
    homes = {
        event.body.home
        for entry in own
        for event in entry.record.events
        if isinstance(event.body, e.RemoteRequested | e.ClaimRequested) and event.body.home != entry.partition
    }
    return [
        entry
        for home in sorted(homes)
        for entry in _decoded(past.deployment, home, list(past.partition(home).pointers(job_id)))
    ]


def _happened(entry: TraceRecord) -> tuple[int, int, int]:
    """Lamport order, which agrees with causes across partitions."""
    return entry.record.lamport, entry.partition, entry.record.seq


def _submission(deployment: Deployment, found: FoundJob) -> list[TraceRecord]:
    """The job's own submission, if it is still there; bytes that could not become a job are none."""
    if found.head.source_offset is None:
        return []
    try:
        entries = _decoded(deployment, found.partition, [(deployment.topics.jobs, found.head.source_offset)])
    except LogDamaged:
        return []
    return [entry for entry in entries if entry.record.job_id == found.job_id]


def _decoded(deployment: Deployment, partition: int, places: list[tuple[str, int]]) -> list[TraceRecord]:
    return [
        TraceRecord(record.topic, record.partition, record.offset, _decode(deployment, record))
        for record in read_at(deployment.log, partition, places)
    ]


def _decode(deployment: Deployment, record: Record) -> e.EventRecord:
    try:
        return deployment.codec.decode(record.value)
    except UndecodableRecord as error:
        place = f"{record.topic} partition {record.partition} offset {record.offset}"
        raise LogDamaged(f"{place} cannot be decoded: {error}") from error


def trace_shown(past: Past, job_id: str, attempt: int | None = None) -> dict[str, Any]:
    """A trace in INTERFACE's form; of one attempt where named. Raises NotFound, LogDamaged."""
    found, records = read_trace(past, job_id)
    events = [
        event_shown(entry.record, index, entry.topic, entry.partition, entry.offset, found.head.secrets)
        for entry in records
        for index in range(len(entry.record.events))
        if attempt is None or entry.record.attempt == attempt
    ]
    if attempt is not None and not events:
        raise NotFound(f"job {job_id} has no attempt {attempt}; it has {found.state.attempt}")
    return {"job_id": job_id, "trace_id": found.head.trace_id or job_id, "events": events}


def attempts_of(records: Iterable[TraceRecord]) -> list[dict[str, Any]]:
    """A job's attempts: number, worker, begin, end, how it ended, and its failure."""
    attempts: dict[int, dict[str, Any]] = {}
    for entry in records:
        record = entry.record
        for index, event in enumerate(record.events):
            position = f"p{entry.partition}@{record.seq + index}"
            if isinstance(event.body, e.AttemptStarted):
                attempts[record.attempt] = _begun(record, event, position)
            elif type(event.body) in _ENDS and record.attempt in attempts:
                _end(attempts[record.attempt], record, event, position)
    return [attempts[number] for number in sorted(attempts)]


def _begun(record: e.EventRecord, event: e.Event, position: str) -> dict[str, Any]:
    return {
        "attempt": record.attempt,
        "outcome": "running",
        "worker": record.worker_id,
        "started_at": time_shown(record.timestamp),
        "ended_at": None,
        "position": position,
        "ended": None,
        "duration_ms": None,
        "fencing_token": event.fencing_token,
        "code_version": record.code_version,
        "failure": None,
    }


def _end(attempt: dict[str, Any], record: e.EventRecord, event: e.Event, position: str) -> None:
    body = event.body
    if attempt["ended"] is not None:
        return  # what follows from an attempt's end (parked, cancelled later) is the job's, not the attempt's
    attempt["outcome"] = _ENDS[type(body)]
    attempt["ended_at"] = time_shown(record.timestamp)
    attempt["ended"] = position
    attempt["duration_ms"] = getattr(body, "duration", None)
    if isinstance(body, e.AttemptFailed | e.MovedToInvestigation):
        attempt["failure"] = {"class": body.failure_class, "reason": body.reason, "step": event.step}
        if isinstance(body, e.AttemptFailed) and body.error is not None:
            attempt["failure"]["rule"] = values.decode(body.error)["rule"]
    elif isinstance(body, e.AttemptLost | e.AttemptHandedBack):
        attempt["failure"] = {"class": "attempt_lost", "reason": body.reason, "step": event.step}


def duplicates_of(records: Iterable[TraceRecord]) -> list[dict[str, Any]]:
    """Later submissions of the job's id: where each was recorded, and whether its content is the job's."""
    return [
        {"position": f"p{entry.partition}@{entry.record.seq + index}", "same": event.body.same}
        for entry in records
        for index, event in enumerate(entry.record.events)
        if isinstance(event.body, e.SubmissionDuplicated)
    ]


def job_detail(past: Past, job_id: str) -> dict[str, Any]:
    """What `jobs show` adds to a job: attempts, payload, result, duplicates. Raises NotFound, LogDamaged."""
    found, records = read_trace(past, job_id)
    head, state, deployment = found.head, found.state, past.deployment
    return {
        "attempts": attempts_of(records),
        "payload": payload_shown(*_fetched(deployment, head.payload, head.payload_ref, head.secrets)),
        "result": value_shown(_fetched(deployment, state.result, state.result_ref, ())[0]),
        "key": head.key,
        "priority": head.priority,
        "parent": head.parent,
        "due": time_or_none(state.due),
        "cancel_reason": state.cancel_reason,
        "duplicates": duplicates_of(records),
    }


def _fetched(
    deployment: Deployment, data: bytes | None, ref: str | None, secrets: tuple[str, ...]
) -> tuple[bytes | None, tuple[str, ...]]:
    """A body's bytes with its secrets; a large one that cannot be had is told by its reference."""
    if ref is None:
        return data, secrets
    try:
        if deployment.blobs is not None:
            return deployment.blobs.get(ref), secrets
    except BlobMissing:
        pass
    return f'{{"missing": "{ref}"}}'.encode(), ()
