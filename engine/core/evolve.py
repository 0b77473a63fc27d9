"""How events change state. `evolve_*` may not choose anything: same state, same event, same result.

The functions take the state before, the event's body and a `Moment` (where and when the event stands) and return the
state after. `fold.py` applies them to the map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from . import events as e
from . import state as s
from .requests import CLAIMED


class FoldError(Exception):
    """An event cannot follow what came before: the log is damaged or was written by a faulty version."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """An event's place: its number, its record's time and writer, and its own envelope fields."""

    seq: int
    timestamp: int
    worker_id: str
    job_id: str
    attempt: int
    step: str | None
    token: int | None


JobEvolver = Callable[[s.JobState, Any, Moment], s.JobState]


def _accepted(body: e.JobAccepted, at: Moment) -> s.JobState:
    return s.JobState(s.WAITING if body.due is None else s.DELAYED, 0, at.seq, due=body.due)


def _started(job: s.JobState, body: e.AttemptStarted, at: Moment) -> s.JobState:
    return s.JobState(
        s.RUNNING,
        at.attempt,
        at.seq,
        worker=at.worker_id,
        started_at=at.timestamp,
        failures=job.failures,
        lost=job.lost,
        token=at.token,
        compensating=job.compensating,
        holds=job.holds,
    )


def _attempt_failed(job: s.JobState, body: e.AttemptFailed, at: Moment) -> s.JobState:
    failures = {**job.failures, body.failure_class: job.failures.get(body.failure_class, 0) + 1}
    failure = s.Failure(body.failure_class, body.reason, at.step)
    return replace(job, last_seq=at.seq, failures=failures, failure=failure)


def _attempt_lost(job: s.JobState, body: e.AttemptLost, at: Moment) -> s.JobState:
    return replace(job, status=s.WAITING, last_seq=at.seq, lost=body.lost, worker=None)


def _handed_back(job: s.JobState, body: e.AttemptHandedBack, at: Moment) -> s.JobState:
    return replace(job, status=s.WAITING, last_seq=at.seq, worker=None)


def _retry_scheduled(job: s.JobState, body: e.RetryScheduled, at: Moment) -> s.JobState:
    return replace(job, status=s.RETRYING, last_seq=at.seq, due=body.due, worker=None)


def _succeeded(job: s.JobState, body: e.JobSucceeded, at: Moment) -> s.JobState:
    return replace(
        job,
        status=s.SUCCEEDED,
        last_seq=at.seq,
        finished_at=at.timestamp,
        failure=None,
        result=body.result,
        result_ref=body.result_ref,
    )


def _failed(job: s.JobState, body: e.JobFailed, at: Moment) -> s.JobState:
    return replace(job, last_seq=at.seq, failure=s.Failure(body.failure_class, body.reason, at.step))


def _investigation(job: s.JobState, body: e.MovedToInvestigation, at: Moment) -> s.JobState:
    failure = s.Failure(body.failure_class, body.reason, at.step)
    return replace(
        job,
        status=s.INVESTIGATION,
        last_seq=at.seq,
        finished_at=at.timestamp,
        failure=failure,
        due=None,
        worker=None,
    )


def _cancelled(job: s.JobState, body: e.JobCancelled, at: Moment) -> s.JobState:
    return replace(
        job,
        status=s.CANCELLED,
        last_seq=at.seq,
        finished_at=at.timestamp,
        due=None,
        cancel_reason=body.reason,
        worker=None,
        compensating=None,
    )


def _cancel_requested(job: s.JobState, body: e.CancelRequested, at: Moment) -> s.JobState:
    return replace(job, last_seq=at.seq, cancel_reason=body.reason)


def _retry_requested(job: s.JobState, body: e.RetryRequested, at: Moment) -> s.JobState:
    return s.JobState(s.WAITING, job.attempt, at.seq, compensating=job.compensating, holds=job.holds)


def _key_blocked(job: s.JobState, body: e.KeyBlocked, at: Moment) -> s.JobState:
    unique = job.holds.unique if job.holds is not None else None
    return replace(job, last_seq=at.seq, holds=s.Holds(True, unique))


def _unique_taken(job: s.JobState, body: e.UniqueTaken, at: Moment) -> s.JobState:
    blocks = job.holds.blocks if job.holds is not None else False
    return replace(job, last_seq=at.seq, holds=s.Holds(blocks, body.key))


def _unique_duplicated(job: s.JobState, body: e.UniqueDuplicated, at: Moment) -> s.JobState:
    reason = f"duplicate of {body.first}, which holds the unique key {body.key!r}"
    return replace(job, status=s.CANCELLED, last_seq=at.seq, finished_at=at.timestamp, due=None, cancel_reason=reason)


def evolve_block(before: s.KeyBlock | None, job_id: str, accepted_seq: int, blocks: bool) -> s.KeyBlock | None:
    """A resource's block after a job failed (`blocks`) or ended; None when nobody blocks it any more."""
    others = [entry for entry in (before.jobs if before is not None else ()) if entry[1] != job_id]
    jobs = sorted([*others, (accepted_seq, job_id)]) if blocks else others
    return s.KeyBlock(tuple(jobs)) if jobs else None


def _compensation_started(job: s.JobState, body: e.CompensationStarted, at: Moment) -> s.JobState:
    failure = s.Failure(body.failure_class, body.reason, at.step)
    return s.JobState(s.WAITING, job.attempt, at.seq, failure=failure, compensating=failure, holds=job.holds)


def _compensation_ended(job: s.JobState, body: e.CompensationEnded, at: Moment) -> s.JobState:
    return replace(job, last_seq=at.seq, compensating=job.compensating if body.left else None)


_EVOLVERS: dict[type[e.Body], tuple[frozenset[str], JobEvolver]] = {
    e.AttemptStarted: (frozenset({s.WAITING, s.DELAYED, s.RETRYING}), _started),
    e.AttemptFailed: (frozenset({s.RUNNING}), _attempt_failed),
    e.AttemptLost: (frozenset({s.RUNNING}), _attempt_lost),
    e.AttemptHandedBack: (frozenset({s.RUNNING}), _handed_back),
    e.RetryScheduled: (frozenset({s.RUNNING}), _retry_scheduled),
    e.JobSucceeded: (frozenset({s.RUNNING}), _succeeded),
    e.JobFailed: (s.ACTIVE, _failed),
    e.MovedToInvestigation: (s.ACTIVE, _investigation),
    e.JobCancelled: (s.ACTIVE | {s.INVESTIGATION}, _cancelled),
    e.CancelRequested: (frozenset({s.RUNNING}), _cancel_requested),
    e.RetryRequested: (frozenset({s.INVESTIGATION}), _retry_requested),
    e.CompensationStarted: (frozenset({s.RUNNING, s.WAITING}), _compensation_started),
    e.CompensationEnded: (frozenset({s.RUNNING, s.WAITING}), _compensation_ended),
    e.KeyBlocked: (s.ACTIVE, _key_blocked),
    e.UniqueTaken: (s.ACTIVE, _unique_taken),
    e.UniqueDuplicated: (frozenset({s.WAITING, s.DELAYED}), _unique_duplicated),
}

#: Events that change a job's state.
JOB_EVENTS = frozenset({e.JobAccepted, *_EVOLVERS})


def evolve_job(job: s.JobState | None, body: e.Body, at: Moment) -> s.JobState:
    """A job's state after one of JOB_EVENTS. Raises FoldError on a transition that the table does not allow."""
    if isinstance(body, e.JobAccepted):
        if job is not None:
            raise FoldError(f"{at.job_id} is accepted a second time at seq {at.seq}")
        return _accepted(body, at)
    if job is None:
        if isinstance(body, e.MovedToInvestigation):
            return _investigation(s.JobState(s.WAITING), body, at)
        raise FoldError(f"{type(body).__name__} at seq {at.seq} is about {at.job_id}, which was never accepted")
    allowed, evolver = _EVOLVERS[type(body)]
    if job.status not in allowed:
        raise FoldError(f"{type(body).__name__} at seq {at.seq} cannot follow status {job.status} of {at.job_id}")
    return evolver(job, body, at)


def evolve_idempotency(record: s.Idempotency | None, body: e.Body, at: Moment) -> s.Idempotency | None:
    """What is known under an effect's key after an effect event; unchanged by events that only report."""
    now = at.timestamp
    if isinstance(body, e.EffectStarted):
        return s.Idempotency(
            s.STARTED,
            body.request_digest,
            at.job_id,
            at.attempt,
            at.step or "",
            changed_at=now,
            compensation=body.compensation,
            compensation_ref=body.compensation_ref,
        )
    if record is None:
        raise FoldError(f"{type(body).__name__} at seq {at.seq} has no EffectStarted before it")
    if isinstance(body, e.EffectSucceeded) or (isinstance(body, e.EffectResolved) and body.outcome == s.DONE):
        answer, ref = body.answer, body.answer_ref
        return replace(record, status=s.DONE, answer=answer, answer_ref=ref, reason=None, changed_at=now)
    if isinstance(body, e.EffectFailed | e.EffectResolved):
        return replace(record, status=s.FAILED, reason=body.reason, changed_at=now)
    if isinstance(body, e.EffectInDoubt):
        return replace(record, status=s.IN_DOUBT, reason=body.reason, changed_at=now)
    return record


def evolve_claim(record: s.Idempotency | None, body: e.KeyClaimed | e.KeySettled, at: Moment) -> s.Idempotency:
    """What the home of a global key knows under it."""
    now = at.timestamp
    if isinstance(body, e.KeyClaimed):
        return s.Idempotency(
            s.STARTED,
            body.request_digest,
            at.job_id,
            at.attempt,
            at.step or "",
            reason=body.doubt,
            changed_at=now,
            claim_id=body.request_id,
            claimant=body.from_partition,
        )
    if record is None:
        raise FoldError(f"KeySettled at seq {at.seq} has no KeyClaimed before it")
    if body.outcome == s.DONE:
        answer, ref = body.answer, body.answer_ref
        return replace(record, status=s.DONE, answer=answer, answer_ref=ref, reason=None, changed_at=now)
    if body.outcome in (s.FAILED, s.IN_DOUBT):
        return replace(record, status=body.outcome, reason=body.reason, changed_at=now)
    # No call was begun under the claim: what was in doubt before it still is.
    return replace(record, status=s.FAILED if record.reason is None else s.IN_DOUBT, changed_at=now)


def evolve_told(
    record: s.Idempotency | None, body: e.ClaimAnswered | e.EffectSkipped, at: Moment
) -> s.Idempotency | None:
    """What a job's own partition knows under a global key, after its home has told something."""
    if isinstance(body, e.EffectSkipped):
        if record is None or record.status not in (s.STARTED, s.IN_DOUBT):
            return record
        return replace(record, status=s.DONE, answer=body.answer, answer_ref=body.answer_ref, reason=None)
    if body.outcome != CLAIMED or body.reason is None:
        return record
    if record is None:
        record = s.Idempotency(s.IN_DOUBT, body.request_digest or "", at.job_id, at.attempt, at.step or "")
    return replace(record, status=s.IN_DOUBT, reason=body.reason, changed_at=at.timestamp)


def _without(claims: dict[str, tuple[str, str]], step: str) -> dict[str, tuple[str, str]]:
    return {name: claim for name, claim in claims.items() if name != step} if step in claims else claims


_ENDS_JOB = (e.JobSucceeded, e.JobCancelled)
_ENDS_CALL = (e.EffectSucceeded, e.EffectFailed, e.EffectInDoubt, e.EffectSkipped)
#: Ends of an attempt that leave the job with its effects.
_LEAVES_ATTEMPT = (e.AttemptLost, e.AttemptHandedBack, e.RetryScheduled, e.MovedToInvestigation, e.CompensationStarted)


def evolve_open_effects(before: s.OpenEffects | None, body: e.Body, at: Moment) -> s.OpenEffects | None:
    """The job's attempt and effect keys after an event; None when the job is over."""
    if isinstance(body, _ENDS_JOB):
        return None
    effects = before.effects if before is not None else {}
    claims = before.claims if before is not None else {}
    running = before.running if before is not None else False
    step = at.step or ""
    if isinstance(body, e.AttemptStarted):
        return s.OpenEffects(True, effects)
    if isinstance(body, e.EffectStarted):
        return s.OpenEffects(running, {**effects, step: (body.key, True)}, claims)
    if isinstance(body, _ENDS_CALL):
        return s.OpenEffects(running, {**effects, step: (body.key, False)}, _without(claims, step))
    if isinstance(body, e.ClaimRequested) or (isinstance(body, e.ClaimAnswered) and body.outcome == CLAIMED):
        return s.OpenEffects(running, effects, {**claims, step: (body.key, body.request_id)})
    if isinstance(body, e.ClaimAnswered):
        return s.OpenEffects(running, effects, _without(claims, step))
    if isinstance(body, _LEAVES_ATTEMPT):
        return s.OpenEffects(False, effects) if effects else None
    return before
