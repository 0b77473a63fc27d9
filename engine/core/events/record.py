"""The envelope: one log record and its events."""

from __future__ import annotations

import msgspec

from . import branches, claims, deadlocks, domain, inputs, lifecycle, notes, reverts, waiting
from .base import Body, Status


class Event(msgspec.Struct, frozen=True):
    """One event of a record.

    `resource` is set where it differs from the record's; `elapsed` is microseconds since the attempt's handler began.
    """

    body: Body
    step: str | None = None
    status: Status = "success"
    resource: str | None = None
    resource_version: int | None = None
    fencing_token: int | None = None
    input_ref: str | None = None
    output_ref: str | None = None
    side_effect: str | None = None
    elapsed: int = 0


class EventRecord(msgspec.Struct, frozen=True):
    """A log record: the envelope and its events, numbered `seq`, `seq + 1`, ...

    `branch` None is production. `trace_id` None equals the job's id, `correlation_id` None equals the trace's id: the
    common case costs a byte.
    """

    seq: int
    lamport: int
    timestamp: int
    epoch: int
    worker_id: str
    job_id: str | None
    attempt: int
    events: tuple[Event, ...]
    resource: str | None = None
    trace_id: str | None = None
    branch: str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    code_version: str | None = None

    @property
    def next_seq(self) -> int:
        """The number behind the last event's."""
        return self.seq + len(self.events)


#: The families; importing them here makes their classes known to `_leaves`.
FAMILIES = (inputs, lifecycle, domain, branches, waiting, reverts, notes, deadlocks, claims)


def _leaves(kind: type[Body]) -> list[type[Body]]:
    return [c for sub in kind.__subclasses__() for c in ([sub] if not sub.__subclasses__() else _leaves(sub))]


#: The most frequent bodies stand first in the Avro union: writers look their branch up from its beginning.
_FREQUENT: tuple[type[Body], ...] = (
    inputs.JobSubmitted,
    lifecycle.JobAccepted,
    lifecycle.AttemptStarted,
    lifecycle.JobSucceeded,
    domain.StepCompleted,
    domain.DecisionRecorded,
    domain.EffectStarted,
    domain.EffectSucceeded,
    domain.StateChanged,
)

#: Body classes by name. In the Avro union, types that came later stand last.
BODIES: dict[str, type[Body]] = {kind.__name__: kind for kind in (*_FREQUENT, *_leaves(Body))}
