"""The fold: applies records to the map. The same code serves live turns, recovery, rebuilds and branches."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from . import events as e
from . import state as s
from .aggregate import evolve_aggregate
from .answered import ANSWERS, answer_of
from .entries import apply_entry
from .evolve import (
    JOB_EVENTS,
    FoldError,
    Moment,
    evolve_block,
    evolve_claim,
    evolve_idempotency,
    evolve_job,
    evolve_open_effects,
    evolve_told,
)
from .expiry import evolve_expired
from .global_keys import is_global, record_key
from .quarantine import evolve_quarantine
from .revert import keep_command
from .schedule import evolve_planned, evolve_restart, evolve_set
from .states import States

_OPEN_EVENTS = frozenset(
    {
        e.EffectStarted,
        e.EffectSucceeded,
        e.EffectFailed,
        e.EffectInDoubt,
        e.EffectSkipped,
        e.AttemptStarted,
        e.AttemptLost,
        e.AttemptHandedBack,
        e.RetryScheduled,
        e.JobSucceeded,
        e.JobCancelled,
        e.MovedToInvestigation,
        e.CompensationStarted,
        e.ClaimRequested,
        e.ClaimAnswered,
    }
)
_ENDED = s.TERMINAL | {s.INVESTIGATION}


def apply_record(states: States, record: e.EventRecord) -> None:
    """Applies a record's events in order. Raises FoldError when one cannot follow what came before."""
    job_id = record.job_id or ""
    seq = record.seq
    for event in record.events:
        at = Moment(seq, record.timestamp, record.worker_id, job_id, record.attempt, event.step, event.fencing_token)
        _apply_event(states, record, event, at)
        seq += 1


def _apply_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    body = event.body
    kind = type(body)
    if kind in JOB_EVENTS:
        _apply_job_event(states, record, body, at)
    apply = _APPLIERS.get(kind)
    if apply is not None:
        apply(states, record, event, at)
    if kind in ANSWERS:
        states.commands.note(at.job_id, body.command_id, answer_of(body))  # type: ignore[attr-defined]
    if kind in _OPEN_EVENTS:
        # A first attempt has none: that spares a look into the store for most jobs.
        first = kind is e.AttemptStarted and at.attempt == 1
        before = None if first else states.open_effects(at.job_id)
        value = evolve_open_effects(before, body, at)
        if value != before:
            states.set_open_effects(at.job_id, value)


def _apply_claim_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    body = event.body
    if isinstance(body, e.KeyClaimed | e.KeySettled):
        stored = record_key(body.key)
        states.set_idempotency(stored, at.seq, evolve_claim(states.idempotency(stored), body, at))
        if isinstance(body, e.KeySettled) and body.command_id is not None:
            states.commands.note(stored, body.command_id, answer_of(body))
    elif isinstance(body, e.ClaimAnswered | e.EffectSkipped) and is_global(body.key):
        before = states.idempotency(body.key)
        after = evolve_told(before, body, at)
        if after is not None and after is not before:
            states.set_idempotency(body.key, at.seq, after)


def _apply_job_event(states: States, record: e.EventRecord, body: e.Body, at: Moment) -> None:
    if isinstance(body, e.JobAccepted):
        # A job has a head since it was accepted: without one there is no need to look for its state.
        before = None if states.head(at.job_id) is None else states.job(at.job_id)
        after = evolve_job(before, body, at)
        states.set_head(at.job_id, head_of(body, record, at.seq))
    else:
        before = states.job(at.job_id)
        after = evolve_job(before, body, at)
        if type(body) is not e.JobSucceeded:
            _apply_marks(states, record, body, at, new=before is None)
    if after.holds is not None and after.status in _ENDED:
        after = _let_go(states, record, after, after.holds, at)
    states.set_job(at.job_id, at.seq, before, after)


def _apply_marks(states: States, record: e.EventRecord, body: e.Body, at: Moment, *, new: bool) -> None:
    """What a job's event changes beside the job's state; `new`: the job was never accepted."""
    if new and isinstance(body, e.MovedToInvestigation):
        states.set_head(
            at.job_id,
            s.JobHead(
                body.type or "",
                at.job_id,
                None,
                0,
                at.timestamp,
                at.seq,
                "",
                source_offset=body.source_offset,
            ),
        )
    elif isinstance(body, e.AttemptStarted) and record.resource is not None:
        if at.token is None:
            raise FoldError(f"AttemptStarted at seq {at.seq} holds {record.resource} without a fencing token")
        states.set_lease(record.resource, at.seq, s.Lease(at.token, at.job_id, at.attempt))
    elif isinstance(body, e.KeyBlocked):
        _set_block(states, record, at, blocks=True)
    elif isinstance(body, e.UniqueTaken):
        states.set_unique(_type_of(states, at), body.key, s.UniqueMark(at.job_id, body.until))


def _let_go(states: States, record: e.EventRecord, job: s.JobState, holds: s.Holds, at: Moment) -> s.JobState:
    """A job that ended in any way frees its unique key; it blocks its resource until a person has decided, too."""
    if holds.unique is not None:
        kind = _type_of(states, at)
        mark = states.unique(kind, holds.unique)
        if mark is not None and mark.job_id == at.job_id:
            states.set_unique(kind, holds.unique, None)
    if job.status == s.INVESTIGATION and holds.blocks:
        return replace(job, holds=s.Holds(True))
    if holds.blocks:
        _set_block(states, record, at, blocks=False)
    return replace(job, holds=None)


def _type_of(states: States, at: Moment) -> str:
    head = states.head(at.job_id)
    if head is None:
        raise FoldError(f"{at.job_id} holds a unique key at seq {at.seq} and was never accepted")
    return head.type


def _set_block(states: States, record: e.EventRecord, at: Moment, *, blocks: bool) -> None:
    head = states.head(at.job_id)
    if record.resource is None or head is None:
        raise FoldError(f"{at.job_id} blocks a key at seq {at.seq} and has no resource")
    block = evolve_block(states.block(record.resource), at.job_id, head.accepted_seq, blocks)
    states.set_block(record.resource, block)


def _apply_key_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    key: str = event.body.key  # type: ignore[attr-defined]
    known = evolve_idempotency(states.idempotency(key), event.body, at)
    if known is not None:
        states.set_idempotency(key, at.seq, known)


def _apply_expiry(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    assert isinstance(event.body, e.KeysExpired)
    stubs = {key: evolve_expired(key, states.idempotency(key), at) for key in event.body.keys}
    states.expire_idempotency(at.seq, stubs)


def _apply_change(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    assert isinstance(event.body, e.StateChanged | e.StateReverted)
    resource = event.resource or record.resource or ""
    version = event.resource_version or 0
    after, stored = evolve_aggregate(states.aggregate(resource), event.body, version, at)
    states.set_aggregate(resource, after, stored)


def _apply_quarantine_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    body = event.body
    assert isinstance(body, e.QuarantineAdded | e.QuarantineLifted)
    states.set_quarantine(body.type, at.seq, evolve_quarantine(states.quarantine(body.type), body, at))


def _apply_cancel_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    if isinstance(event.body, e.CancelKept):
        states.keep_cancel(at.job_id, event.body)
    else:
        states.drop_cancel(at.job_id)


def _apply_peer(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    assert isinstance(event.body, e.PeerRaised)
    states.set_peer(event.body.peer, event.body.peer_epoch)


def _apply_revert(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    keep_command(states.reverts, event, at.job_id)


def _apply_entry(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    apply_entry(states.entries, record, event, at)


def _apply_hold_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    body = event.body
    if isinstance(body, e.TypeNoted):
        states.set_note(body.type, None if body.reason is None else s.TypeNote(body.reason))
    elif isinstance(body, e.SubmissionHeld):
        states.set_held_submission(at.job_id, s.Held(body.type, body.digest, body.original, body.source_offset, at.seq))
    else:
        if states.held_submission(at.job_id) is None:
            raise FoldError(f"{at.job_id} is released at seq {at.seq} and was not held")
        states.set_held_submission(at.job_id, None)


def head_of(body: e.JobAccepted, record: e.EventRecord, seq: int) -> s.JobHead:
    """What never changes about a job, from the event that accepted it."""
    return s.JobHead(
        body.type,
        body.key,
        record.resource,
        body.priority,
        body.submitted_at,
        seq,
        body.digest,
        body.payload,
        body.payload_ref,
        record.trace_id,
        record.correlation_id,
        body.parent,
        body.secrets,
        body.source_offset,
    )


def _apply_schedule_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    body = event.body
    if isinstance(body, e.ScheduleSet):
        states.set_schedule(body.schedule, at.seq, evolve_set(states.schedules.get(body.schedule), body))
    elif isinstance(body, e.InstantPlanned):
        known = states.schedules.get(body.schedule)
        if known is None:
            raise FoldError(f"InstantPlanned at seq {at.seq} is of schedule {body.schedule!r}, which was never set")
        states.set_schedule(body.schedule, at.seq, evolve_planned(known, body))
    elif isinstance(body, e.ClockJumped) and body.restart is not None:
        for name, known in list(states.schedules.items()):
            states.set_schedule(name, at.seq, evolve_restart(known, body.restart))


def _apply_lease_event(states: States, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    resource = event.resource or ""
    body = event.body
    if isinstance(body, e.LeaseAcquired):
        if at.token is None:
            raise FoldError(f"LeaseAcquired at seq {at.seq} has no fencing token")
        states.set_lease(resource, at.seq, s.Lease(at.token, at.job_id, at.attempt, body.ttl))
        if body.holder_partition is not None:
            held_by = (body.ttl, body.holder_partition, body.request_id or "")
            states.set_lent(resource, s.Lent(at.token, at.job_id, at.attempt, *held_by))
        return
    lease = states.lease(resource)
    if lease is not None and lease.token == at.token and not lease.released:
        states.set_lease(resource, at.seq, s.Lease(lease.token, lease.holder, lease.attempt, lease.ttl, released=True))
        if lease.ttl is not None and states.lent(resource) is not None:
            states.set_lent(resource, None)


#: What an event changes beside its job's state and open effects.
_APPLIERS: dict[type[e.Body], Callable[[States, e.EventRecord, e.Event, Moment], None]] = {
    **dict.fromkeys(
        (e.EffectStarted, e.EffectSucceeded, e.EffectFailed, e.EffectInDoubt, e.EffectResolved), _apply_key_event
    ),
    **dict.fromkeys((e.StateChanged, e.StateReverted), _apply_change),
    **dict.fromkeys((e.LeaseAcquired, e.LeaseReleased, e.LeaseExpired), _apply_lease_event),
    **dict.fromkeys((e.SubmissionHeld, e.SubmissionReleased, e.TypeNoted), _apply_hold_event),
    **dict.fromkeys((e.QuarantineAdded, e.QuarantineLifted), _apply_quarantine_event),
    **dict.fromkeys((e.ScheduleSet, e.InstantPlanned, e.ClockJumped), _apply_schedule_event),
    **dict.fromkeys((e.CancelKept, e.JobCancelled), _apply_cancel_event),
    e.PeerRaised: _apply_peer,
    e.RevertDecided: _apply_revert,
    e.KeysExpired: _apply_expiry,
    **dict.fromkeys((e.KeyClaimed, e.KeySettled, e.ClaimAnswered, e.EffectSkipped), _apply_claim_event),
    **dict.fromkeys((e.MovedToInvestigation, e.EntryPosted), _apply_entry),
}
