"""The two modes that make no branch: `trace` reads, `dry-run` runs the handler on the recording."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ..codec.avro import Codec
from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.events import EventRecord
from ..core.requests import DONE, EXPIRED, RELEASE
from ..ports.blobs import BlobMissing
from ..runtime.app import AppError
from ..runtime.deployment import Deployment
from .parent import Refused, Replayer, replay
from .recording import Attempt, Recording
from .source import JobPast, open_job
from .wire import Reply, Request

#: Seconds that bound a replayed handler when its job type has no time-out.
LIMIT = 300.0


class Replayed(NamedTuple):
    """A replay for people and programs. `shown` is INTERFACE's JSON; `blocked`: the guard refused something."""

    shown: dict[str, Any]
    differs: bool
    blocked: bool


def trace(deployment: Deployment, job_id: str, number: int | None = None) -> Replayed:
    """What the recording says of an attempt; no code runs. Raises NoRecording."""
    with open_job(deployment, job_id) as job:
        recording = job.recording
        attempt = recording.attempt(number)
        shown = {
            "mode": "trace",
            "job_id": job_id,
            "attempt": attempt.number,
            "outcome": attempt.outcome,
            "failed_step": attempt.failed_step,
            "divergences": [],
            "reason": _reason(attempt),
            "ends_here": _ends_here(recording, attempt),
            "code_version": attempt.code_version,
            "attempts": [_attempt_shown(one) for one in recording.attempts.values()],
            "steps": [_step_shown(recording, step) for step in attempt.steps],
            "leases": leases(recording, attempt),
            "in_doubt": in_doubt(attempt),
        }
        return Replayed(shown, False, False)


def _ends_here(recording: Recording, attempt: Attempt) -> str | None:
    if recording.gone:
        after = ", ".join("the beginning" if before < 0 else recording.position(before) for before, _ in recording.gone)
        told = f"records of the trace were removed from the log (behind {after})"
        return told if attempt.ends_here is None else f"{attempt.ends_here}; {told}"
    if recording.damaged is not None and attempt.end is None:
        return f"{attempt.ends_here} (the next record is damaged: {recording.damaged})"
    return attempt.ends_here


def _reason(attempt: Attempt) -> str | None:
    return None if attempt.end is None else getattr(attempt.end.body, "reason", None)


def _attempt_shown(attempt: Attempt) -> dict[str, Any]:
    started = attempt.started
    return {
        "attempt": attempt.number,
        "outcome": attempt.outcome,
        "worker": None if started is None else started.record.worker_id,
        "token": attempt.token,
        "failed_step": attempt.failed_step,
        "reason": _reason(attempt),
    }


def _step_shown(recording: Recording, step: Any) -> dict[str, Any]:
    status = step.events[-1].event.status if step.done_at is not None else "unknown"
    return {**step.describe(), "status": status, "position": recording.position(step.first)}


def leases(recording: Recording, attempt: Attempt) -> list[dict[str, Any]]:
    """Who held what when, in log order: the job's own resource first, then leases asked for in the handler."""
    found: list[dict[str, Any]] = []
    started = attempt.started
    if started is not None and started.record.resource is not None:
        end = None if attempt.end is None else recording.position(attempt.end.seq)
        how = "still held" if end is None else "ended with the attempt"
        found.append(_lease(started.record.resource, attempt.token, recording.position(started.seq), end, how))
    found.extend(_step_lease(recording, step) for step in attempt.steps if step.kind == "lease")
    return found


def _step_lease(recording: Recording, step: Any) -> dict[str, Any]:
    acquired, refused = step.find(e.LeaseAcquired), step.find(e.LeaseRefused)
    ended = step.find(e.LeaseReleased, e.LeaseExpired)
    first, deadlock = step.events[0], step.find(e.DeadlockDetected)
    if deadlock is not None:
        how = f"refused: {deadlock.body.reason}"
        return _lease(first.event.resource, None, recording.position(first.seq), None, how)
    if step.find(e.RemoteRequested, e.RemoteAnswered) is not None:
        return _lease_elsewhere(recording, step)
    if acquired is None:
        holder = (refused or first).body.holder
        how = f"{'refused' if refused is not None else 'waited for'}: held by {holder}"
        return _lease(first.event.resource, None, recording.position(first.seq), None, how)
    end = None if ended is None else recording.position(ended.seq)
    how = "still held" if ended is None else type(ended.body).__name__.removeprefix("Lease").lower()
    token = acquired.event.fencing_token
    return _lease(acquired.event.resource, token, recording.position(acquired.seq), end, how)


def _lease_elsewhere(recording: Recording, step: Any) -> dict[str, Any]:
    """A lease at another partition, as this one was told of it."""
    first, answered = step.events[0], step.first_answer
    place = recording.position(first.seq)
    if answered is None or answered.body.outcome != DONE:
        how = "waited for" if answered is None else f"refused: {answered.body.reason}"
        return _lease(first.event.resource, None, place, None, how)
    last = step.events[-1]
    lost = isinstance(last.body, e.RemoteAnswered) and last.body.outcome == EXPIRED
    released = isinstance(last.body, e.RemoteRequested) and last.body.op == RELEASE
    how = "expired" if lost else "released" if released else "still held"
    end = recording.position(last.seq) if lost or released else None
    return _lease(first.event.resource, answered.event.fencing_token, recording.position(answered.seq), end, how)


def _lease(resource: str | None, token: int | None, start: str, end: str | None, how: str) -> dict[str, Any]:
    return {"resource": resource, "token": token, "from": start, "to": end, "end": how}


def in_doubt(attempt: Attempt) -> list[dict[str, Any]]:
    """Effects that may have been done and nobody knows."""
    found = []
    for step in attempt.steps:
        at = step.outcome
        if step.kind != "effect" or (at is not None and not isinstance(at.body, e.EffectInDoubt)):
            continue
        if at is None and step.find(e.EffectStarted) is None:
            continue  # a claim that came to no call
        reason = "no outcome was recorded" if at is None else at.body.reason
        found.append({"step": step.name, "key": step.events[-1].body.key, "reason": reason})
    return found


def dry_run(
    deployment: Deployment,
    job_id: str,
    number: int | None = None,
    *,
    app: str,
    bypass: bool = False,
    limit: float = LIMIT,
    replayer: Replayer | None = None,
) -> Replayed:
    """Runs an attempt's handler on its recording, in `replayer` or a new process.

    Raises NoRecording, Refused, AppError.
    """
    with open_job(deployment, job_id) as job:
        attempt = job.recording.attempt(number)
        assert attempt.started is not None
        request = make_request(deployment, job, attempt, "dry-run", app, attempt.started.seq, limit)
        request = msgspec.structs.replace(request, bypass=bypass)
        reply = replay(request, job.past.store, deployment.blobs, replayer)
    check_loaded(reply, app)
    return _dry_run_shown(job_id, attempt, reply)


def _dry_run_shown(job_id: str, attempt: Attempt, reply: Reply) -> Replayed:
    divergences = msgspec.json.decode(reply.divergences)
    blocked = reply.outcome == "blocked"
    differs = bool(divergences) or (reply.outcome == "failed" and attempt.outcome != "failed")
    status = "blocked" if blocked else "diverged" if differs else "unfinished" if _open(reply) else "same"
    shown = {
        "mode": "dry-run",
        "job_id": job_id,
        "attempt": attempt.number,
        "outcome": reply.outcome,
        "failed_step": reply.failed_step,
        "divergences": divergences,
        "status": status,
        "reason": reply.reason,
        "recorded_outcome": attempt.outcome,
        "violations": violations_shown(reply),
        "code_version": {"recorded": attempt.code_version, "ran": reply.code_version},
    }
    return Replayed(shown, differs, blocked)


def check_loaded(reply: Reply, app: str) -> None:
    """Raises AppError when the app could not even be imported, Refused when it was not run as asked."""
    if reply.outcome == "unloadable":
        raise AppError(reply.reason or f"app {app!r} cannot be loaded")
    if reply.outcome == "refused":
        raise Refused(reply.reason or f"app {app!r} refused the replay")


def _open(reply: Reply) -> bool:
    return reply.outcome == "unfinished"


def violations_shown(reply: Reply) -> list[dict[str, str]]:
    """What the guard refused."""
    return [{"event": event, "argument": argument, "place": place} for event, argument, place in reply.violations]


def make_request(
    deployment: Deployment, job: JobPast, attempt: Attempt, mode: str, app: str, base: int, limit: float
) -> Request:
    """The request for a replay of an attempt. Raises Refused when its payload is gone, NoRecording when events."""
    job.recording.check_whole(attempt)
    codec = Codec()  # without a registry, which the child could not reach
    return Request(
        mode=mode,
        app=app,
        job_id=job.recording.job_id,
        attempt=attempt.number,
        partition=job.past.partition,
        partitions=deployment.partitions,
        records=[codec.encode(record) for record in _records(job.recording)],
        head=s.encode_state(job.head),
        payload=payload_of(deployment, job.head),
        base=base,
        has_blobs=deployment.blobs is not None,
        limit=limit,
    )


def _records(recording: Recording) -> list[EventRecord]:
    return list({at.record.seq: at.record for at in recording.events}.values())


def payload_of(deployment: Deployment, head: s.JobHead) -> bytes:
    """A job's payload, wherever it is kept. Raises Refused when it is gone."""
    if head.payload is not None:
        return head.payload
    if head.payload_ref is None:
        return values.encode({})
    if deployment.blobs is None:
        raise Refused(f"payload {head.payload_ref} is in a blob store, and none is set (--blobs)")
    try:
        return deployment.blobs.get(head.payload_ref)
    except BlobMissing as error:
        raise Refused(f"the payload is gone: {error}") from error
