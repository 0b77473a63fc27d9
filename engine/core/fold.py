"""The fold: applies records to the map. The same code serves live turns, recovery, rebuilds and branches."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from . import events as e
from . import state as s
from .aggregate import evolve_aggregate
from .evolve import (
    JOB_EVENTS,
    FoldError,
    Moment,
    evolve_block,
    evolve_idempotency,
    evolve_job,
    evolve_open_effects,
)


class States(Protocol):
    """The map of one partition as the fold reads and changes it: newest values, by key."""

    def head(self, job_id: str) -> s.JobHead | None:
        """What never changes about the job."""
        ...

    def set_head(self, job_id: str, head: s.JobHead) -> None:
        """Stores it, once."""
        ...

    def job(self, job_id: str) -> s.JobState | None:
        """Where the job stands."""
        ...

    def set_job(self, job_id: str, seq: int, before: s.JobState | None, after: s.JobState) -> None:
        """Stores its next state, its place in the ready and timer indexes, and the counts by status."""
        ...

    def open_effects(self, job_id: str) -> s.OpenEffects | None:
        """The job's attempt and effect keys, while it is not over."""
        ...

    def set_open_effects(self, job_id: str, value: s.OpenEffects | None) -> None:
        """Stores or removes them."""
        ...

    def lease(self, resource: str) -> s.Lease | None:
        """The newest grant of a resource."""
        ...

    def set_lease(self, resource: str, seq: int, value: s.Lease) -> None:
        """Stores a grant or its release."""
        ...

    def idempotency(self, key: str) -> s.Idempotency | None:
        """What is known under an effect's key."""
        ...

    def set_idempotency(self, key: str, seq: int, value: s.Idempotency) -> None:
        """Stores it."""
        ...

    def aggregate(self, key: str) -> s.Aggregate:
        """The aggregate's newest version, `NO_AGGREGATE` when there is none."""
        ...

    def set_aggregate(self, key: str, value: s.Aggregate, stored: s.AggregateVersion) -> None:
        """Stores its next version at `value.seq`."""
        ...

    def block(self, resource: str) -> s.KeyBlock | None:
        """The failed jobs that a resource's later jobs wait behind."""
        ...

    def set_block(self, resource: str, value: s.KeyBlock | None) -> None:
        """Stores or removes them."""
        ...

    def unique(self, job_type: str, key: str) -> s.UniqueMark | None:
        """Who holds a unique key of a type."""
        ...

    def set_unique(self, job_type: str, key: str, value: s.UniqueMark | None) -> None:
        """Stores or removes it."""
        ...

    def held(self, job_id: str) -> s.Held | None:
        """A submission that waits for an owner which knows its type."""
        ...

    def set_held(self, job_id: str, value: s.Held | None) -> None:
        """Stores or removes it."""
        ...

    def set_note(self, job_type: str, value: s.TypeNote | None) -> None:
        """Stores or removes why jobs of a type wait."""
        ...


_EFFECT_EVENTS = frozenset({e.EffectStarted, e.EffectSucceeded, e.EffectFailed, e.EffectInDoubt})
_OPEN_EVENTS = _EFFECT_EVENTS | {
    e.AttemptStarted,
    e.AttemptLost,
    e.AttemptHandedBack,
    e.RetryScheduled,
    e.JobSucceeded,
    e.JobCancelled,
    e.MovedToInvestigation,
}
_ENDED = s.TERMINAL | {s.INVESTIGATION}
_HOLD_EVENTS = frozenset({e.SubmissionHeld, e.SubmissionReleased, e.TypeNoted})
_LEASE_EVENTS = frozenset({e.LeaseAcquired, e.LeaseReleased, e.LeaseExpired})


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
    if kind in _EFFECT_EVENTS:
        key: str = body.key  # type: ignore[attr-defined]
        known = evolve_idempotency(states.idempotency(key), body, at)
        if known is not None:
            states.set_idempotency(key, at.seq, known)
    elif isinstance(body, e.StateChanged):
        resource = event.resource or record.resource or ""
        version = event.resource_version or 0
        after, stored = evolve_aggregate(states.aggregate(resource), body, version, at)
        states.set_aggregate(resource, after, stored)
    elif kind in _LEASE_EVENTS:
        _apply_lease_event(states, event, at)
    elif kind in _HOLD_EVENTS:
        _apply_hold_event(states, body, at)
    if kind in _OPEN_EVENTS:
        # A first attempt has none: that spares a look into the store for most jobs.
        first = kind is e.AttemptStarted and at.attempt == 1
        before = None if first else states.open_effects(at.job_id)
        value = evolve_open_effects(before, body, at)
        if value != before:
            states.set_open_effects(at.job_id, value)


def _apply_job_event(states: States, record: e.EventRecord, body: e.Body, at: Moment) -> None:
    kind = type(body)
    # A job has a head since it was accepted: without one there is no need to look for its state.
    known = kind is not e.JobAccepted or states.head(at.job_id) is not None
    before = states.job(at.job_id) if known else None
    after = evolve_job(before, body, at)
    if isinstance(body, e.JobAccepted):
        states.set_head(at.job_id, _head(body, record, at.seq))
    elif before is None and isinstance(body, e.MovedToInvestigation):
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
    if after.holds is not None and after.status in _ENDED:
        after = _let_go(states, record, after, after.holds, at)
    states.set_job(at.job_id, at.seq, before, after)


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


def _apply_hold_event(states: States, body: e.Body, at: Moment) -> None:
    if isinstance(body, e.TypeNoted):
        states.set_note(body.type, None if body.reason is None else s.TypeNote(body.reason))
    elif isinstance(body, e.SubmissionHeld):
        states.set_held(at.job_id, s.Held(body.type, body.digest, body.original, body.source_offset, at.seq))
    else:
        if states.held(at.job_id) is None:
            raise FoldError(f"{at.job_id} is released at seq {at.seq} and was not held")
        states.set_held(at.job_id, None)


def _head(body: e.JobAccepted, record: e.EventRecord, seq: int) -> s.JobHead:
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


def _apply_lease_event(states: States, event: e.Event, at: Moment) -> None:
    resource = event.resource or ""
    if isinstance(event.body, e.LeaseAcquired):
        if at.token is None:
            raise FoldError(f"LeaseAcquired at seq {at.seq} has no fencing token")
        states.set_lease(resource, at.seq, s.Lease(at.token, at.job_id, at.attempt, event.body.ttl))
        return
    held = states.lease(resource)
    if held is not None and held.token == at.token and not held.released:
        states.set_lease(resource, at.seq, s.Lease(held.token, held.holder, held.attempt, held.ttl, released=True))
