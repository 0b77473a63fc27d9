"""What an owner decides. Pure: state, request and the time go in, events come out; nothing is read or changed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import events as e
from . import state as s
from .compensate import SUFFIX, Undo, end_compensation, same_intent, start_compensation
from .doubt import unresolved
from .expiry import expired_reason
from .retry import FailureClass, Retried, Retry, decide_retry
from .texts import MESSAGE_MAX as MESSAGE_MAX
from .texts import bounded as bounded
from .texts import text_of as text_of
from .unique import Unique

PRIORITY_MAX = 1000
NOTHING_TO_UNDO = Undo()


class Submission(NamedTuple):
    """A submission as the partition's owner sees it.

    `home` is the partition its key belongs to; `refusal` says why it can't run (unknown type, refused payload).
    """

    job_id: str
    body: e.JobSubmitted
    submitted_at: int
    offset: int
    key: str
    resource: str | None
    home: int
    refusal: tuple[FailureClass, str] | None
    secrets: tuple[str, ...] = ()
    unique: Unique | None = None


def decide_submission(
    known: s.JobHead | None, submission: Submission, partition: int, now: int, kept: s.KeptCancel | None = None
) -> tuple[e.Event, ...]:
    """Events for a submission: accepted, accepted and parked, a duplicate, or forwarded to its home partition.

    `kept` is a cancel that came before the job: it ends the job at once.
    """
    body = submission.body
    if known is not None:
        same = known.digest == body.digest and known.type == body.type
        duplicated = e.SubmissionDuplicated(body.digest, known.digest, same, submission.offset)
        return (e.Event(duplicated, status="skipped" if same else "fail"),)
    if submission.home != partition:
        return (e.Event(e.SubmissionForwarded(submission.home, submission.key, submission.offset)),)
    accepted = e.JobAccepted(
        type=body.type,
        key=submission.key,
        payload=body.payload,
        payload_ref=body.payload_ref,
        digest=body.digest,
        priority=max(-PRIORITY_MAX, min(PRIORITY_MAX, body.priority)),
        due=body.due if body.due is not None and body.due > now else None,
        submitted_at=submission.submitted_at,
        source_offset=submission.offset,
        parent=body.parent,
        secrets=submission.secrets,
    )
    if kept is not None:
        return (e.Event(accepted), e.Event(e.JobCancelled(kept.reason, kept.actor, kept.command_id), status="fail"))
    if submission.refusal is None:
        unique = submission.unique
        if unique is None:
            return (e.Event(accepted),)
        first = unique.holder(now)
        if first is None:
            return (e.Event(accepted), unique.taken(now))
        return (e.Event(accepted), e.Event(e.UniqueDuplicated(unique.key, first), status="skipped"))
    failure_class, reason = submission.refusal
    return (e.Event(accepted), *investigation(failure_class, bounded(reason), None))


def decide_hold(held: s.Held | None, submission: Submission, original: bytes) -> e.Event:
    """A submission whose type is unknown here: held as it is, or a duplicate of one that is held."""
    body = submission.body
    if held is None:
        return e.Event(e.SubmissionHeld(body.type, body.digest, original, submission.offset))
    same = held.digest == body.digest and held.type == body.type
    duplicated = e.SubmissionDuplicated(body.digest, held.digest, same, submission.offset)
    return e.Event(duplicated, status="skipped" if same else "fail")


def investigation(
    failure_class: str, reason: str, step: str | None, exception: str | None = None
) -> tuple[e.Event, ...]:
    """The end of a job that will not be retried by itself."""
    return (
        e.Event(e.JobFailed(failure_class, reason, exception), step=step, status="fail"),
        e.Event(e.MovedToInvestigation(failure_class, reason), step=step, status="fail"),
    )


def decide_start(job: s.JobState, lease: s.Lease | None, resource: str | None, timeout_ms: int | None) -> e.Event:
    """The next attempt; where the job has a resource, with the next fencing token of it."""
    token = None if resource is None else (lease.token if lease is not None else 0) + 1
    return e.Event(e.AttemptStarted(job.lost, timeout_ms), fencing_token=token)


class AttemptFailure(NamedTuple):
    """How an attempt failed. `retry_after` seconds, where the other side asked for it; `error` is for the trace."""

    failure_class: FailureClass
    reason: str
    step: str | None
    exception: str | None
    duration: int
    retry_after: float | None = None
    terminal: bool = False
    error: bytes | None = None


def decide_failure(
    job: s.JobState, failure: AttemptFailure, policy: Retry, now: int, draw: float, undo: Undo = NOTHING_TO_UNDO
) -> tuple[e.Event, ...]:
    """A failed attempt: retried when its class has budget left, else moved to the investigation queue.

    Before that, what `undo` holds is compensated.
    """
    reason = bounded(failure.reason)
    failed = e.Event(
        e.AttemptFailed(failure.failure_class, reason, failure.exception, failure.duration, failure.error),
        step=failure.step,
        status="fail",
    )
    counts: Mapping[FailureClass, int] = {FailureClass(name): count for name, count in job.failures.items()}
    counts = {**counts, failure.failure_class: counts.get(failure.failure_class, 0) + 1}
    if failure.terminal:
        return (failed, *_for_good(job, failure, reason, undo))
    budget = failure.failure_class
    if budget is FailureClass.IN_DOUBT:
        # It can be resolved (else it is terminal): the next attempt looks it up or sends it again.
        budget = FailureClass.TRANSIENT
        doubted = counts[FailureClass.IN_DOUBT]
        counts = {**counts, FailureClass.IN_DOUBT: 0, budget: counts.get(budget, 0) + doubted}
    decision = decide_retry(policy, budget, counts, draw, failure.retry_after)
    if isinstance(decision, Retried):
        scheduled = e.RetryScheduled(failure.failure_class, decision.delay_ms, now + decision.delay_ms * 1000)
        return (failed, e.Event(scheduled))
    doubted = failure.failure_class is FailureClass.IN_DOUBT
    hint = "; `rewindq effects list --in-doubt` names the effect" if doubted else ""
    ended = bounded(f"{reason} ({decision.reason}){hint}")
    return (failed, *_for_good(job, failure, ended, undo))


def _for_good(job: s.JobState, failure: AttemptFailure, reason: str, undo: Undo) -> tuple[e.Event, ...]:
    """No more attempts. With an outcome unknown nothing is undone: a person resolves it, and the job may go on."""
    kind, step, exception = failure.failure_class, failure.step, failure.exception
    if job.compensating is not None:
        return end_compensation(job.compensating, undo, f"{step}: {reason}" if step else reason)
    if undo.due and not undo.doubted and kind is not FailureClass.IN_DOUBT:
        return start_compensation(kind, reason, step, exception, undo)
    return investigation(kind, reason, step, exception)


def doubts(open_effects: s.OpenEffects | None, reason: str) -> tuple[e.Event, ...]:
    """`EffectInDoubt` for each effect that has started and has no outcome."""
    if open_effects is None or not open_effects.effects:
        return ()
    return tuple(
        e.Event(e.EffectInDoubt(key, reason), step=step, status="fail", side_effect=step)
        for step, (key, pending) in sorted(open_effects.effects.items())
        if pending
    )


def decide_lost(job: s.JobState, max_lost: int, reason: str, undo: Undo = NOTHING_TO_UNDO) -> tuple[e.Event, ...]:
    """An attempt whose worker is gone: the job waits again, or is parked as a poison job after `max_lost` losses."""
    lost = job.lost + 1
    events: tuple[e.Event, ...] = (e.Event(e.AttemptLost(reason, job.worker or "", lost), status="fail"),)
    if lost < max_lost:
        return events
    poison = f"poison job: its worker was lost {lost} times (limit {max_lost}); last: {job.worker}"
    failure = AttemptFailure(FailureClass.ATTEMPT_LOST, poison, None, None, 0)
    return (*events, *_for_good(job, failure, poison, undo))


def decide_cancel(
    job: s.JobState | None, command: e.CancelCommand, dropped: s.KeptCancel | None = None
) -> tuple[e.Event, ...]:
    """Ends a job that does not run at once; asks a running one to stop; refuses what is over.

    A job that was not seen yet may still come: the cancel is kept for it. `dropped` is the one that has to go then.
    """
    if job is None:
        kept = e.Event(e.CancelKept(command.reason, command.actor, command.command_id))
        if dropped is None:
            return (kept,)
        reason = f"its job has not come, and {s.KEPT_CANCELS_MAX} cancels of other jobs were kept since"
        return (kept, _refused("cancel", dropped.command_id, reason))
    if job.status in s.TERMINAL:
        return (_refused("cancel", command.command_id, f"the job is {job.status} already"),)
    if job.compensating is not None and job.status != s.INVESTIGATION:
        reason = "the job has failed, and what it did outside is being undone: wait until that has ended"
        return (_refused("cancel", command.command_id, reason),)
    if job.status == s.RUNNING:
        return (e.Event(e.CancelRequested(command.reason, command.actor, command.command_id)),)
    return (e.Event(e.JobCancelled(command.reason, command.actor, command.command_id), status="fail"),)


def decide_operator_retry(
    job: s.JobState | None, command: e.RetryCommand, unique: Unique | None = None, now: int = 0
) -> tuple[e.Event, ...]:
    """Sends a job of the investigation queue back, unless another one has its unique key by now."""
    if job is None:
        return (_refused("retry", command.command_id, "no such job on this partition"),)
    if job.status != s.INVESTIGATION:
        return (_refused("retry", command.command_id, f"only a job in investigation is retried; this is {job.status}"),)
    requested = e.Event(e.RetryRequested(command.reason, command.actor, command.command_id))
    if unique is None:
        return (requested,)
    other = unique.holder(now)
    if other is not None:
        reason = f"{other} holds the unique key {unique.key!r}: retry when it has ended, or cancel it"
        return (_refused("retry", command.command_id, reason),)
    return (requested, unique.taken(now))


def _refused(command: str, command_id: str, reason: str) -> e.Event:
    return e.Event(e.CommandRefused(command, command_id, reason), status="fail")


class EffectRequest(NamedTuple):
    """An effect as the handler asked for it. `meta` is short, for people; `timeout_ms` bounds the call."""

    name: str
    step: str
    key: str
    digest: str
    meta: bytes | None
    timeout_ms: int | None
    idempotent: bool
    has_lookup: bool
    compensation: bytes | None = None
    compensation_ref: str | None = None


class Call(NamedTuple):
    """Append `started`, wait until it is durable, then call."""

    started: e.Event


class Answered(NamedTuple):
    """Done before: return the recorded answer. `record` holds it."""

    skipped: e.Event
    record: s.Idempotency


class Lookup(NamedTuple):
    """In doubt: ask `on_doubt` before anything else."""

    reason: str


class Refused(NamedTuple):
    """Nothing is called; the attempt fails with this class. `event` is recorded where there is one."""

    failure_class: FailureClass
    reason: str
    event: e.Event | None
    terminal: bool = False


EffectDecision = Call | Answered | Lookup | Refused


def decide_undone(request: EffectRequest, undo: s.Idempotency) -> Refused:
    """An effect that is being undone gives nobody its answer, which may not hold any more."""
    if undo.status == s.STARTED:
        return Refused(FailureClass.CONCURRENCY, f"effect {request.name!r} is being undone by job {undo.job_id}", None)
    reason = unresolved(f"{request.name} undone", request.key + SUFFIX, undo.reason or "no outcome was recorded")
    return Refused(FailureClass.IN_DOUBT, reason, None, terminal=True)


def start_effect(request: EffectRequest) -> Call:
    """The call's `EffectStarted`."""
    started = e.EffectStarted(
        request.key,
        request.digest,
        request.meta,
        request.timeout_ms,
        request.idempotent,
        request.compensation,
        request.compensation_ref,
    )
    return Call(e.Event(started, step=request.step, side_effect=request.name))


def decide_effect(
    known: tuple[int, s.Idempotency] | None, request: EffectRequest, job_id: str, holder_runs: bool
) -> EffectDecision:
    """What may be done about an effect, given what is known under its key `(seq, record)`.

    `holder_runs` tells whether the job that started it last is running this very moment (this attempt excluded).
    """
    call = start_effect(request)
    if known is None:
        return call
    seq, record = known
    if record.request_digest != request.digest:
        conflict = e.IdempotencyConflict(request.key, record.request_digest, request.digest)
        event = e.Event(conflict, step=request.step, status="fail", side_effect=request.name)
        reason = (
            f"effect {request.name!r}: key {request.key!r} was used with other content "
            f"(recorded {record.request_digest}, now {request.digest}); a new intent needs a new key"
        )
        return Refused(FailureClass.VALIDATION, reason, event, terminal=True)
    if record.status == s.DONE:
        skipped = e.EffectSkipped(request.key, record.answer, record.answer_ref, seq)
        return Answered(e.Event(skipped, step=request.step, status="skipped", side_effect=request.name), record)
    if record.status == s.FAILED:
        return call
    if record.status == s.STARTED and holder_runs:
        reason = f"effect {request.name!r}: {record.job_id} is making the call with key {request.key!r} right now"
        if record.job_id == job_id:
            # Trying again would meet the same: the handler asks twice at once.
            reason += "; await it before this attempt asks for it again, or give the second call a key of its own"
            return Refused(FailureClass.VALIDATION, reason, None, terminal=True)
        return Refused(FailureClass.CONCURRENCY, reason, None)
    expired = record.status == s.EXPIRED
    why = expired_reason(record) if expired else record.reason or "no outcome was recorded"
    if request.has_lookup:
        return Lookup(why)
    if request.idempotent:
        return call
    doubt = e.Event(e.EffectInDoubt(request.key, why, 0), step=request.step, status="fail", side_effect=request.name)
    reason = unresolved(request.name, request.key, why)
    return Refused(FailureClass.IN_DOUBT, reason, doubt if expired else None, terminal=True)


def unstable_key(open_effects: s.OpenEffects | None, request: EffectRequest) -> e.Event | None:
    """An event when an earlier attempt gave the same step another key."""
    earlier = open_effects.effects.get(request.step) if open_effects is not None else None
    if earlier is None or same_intent(earlier[0], request.key):
        return None
    body = e.IdempotencyKeyUnstable(request.key, earlier[0])
    return e.Event(body, step=request.step, status="fail", side_effect=request.name)


def effect_key(partition_key: str, operation: str, key: str) -> str:
    """The key of an effect, the same on every attempt: `{partition key}/{operation}/{key}`, its parts escaped so that
    different parts never give one key.

    Raises ValueError when `key` is blank.
    """
    if not key.strip():
        raise ValueError(f"effect {operation!r}: the idempotency key is blank; give one that names this intent")
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (partition_key, operation, key))
