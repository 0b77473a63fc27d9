"""Lifecycle events: did the queue behave?"""

from __future__ import annotations

from .base import Body


class PartitionTaken(Body, frozen=True):
    """A writer's fence, unnumbered, in both topics: what an older epoch appends behind it is ignored.

    Its owner's submissions begin at `offset`; `stalled` owners in a row before it began there, too.
    """

    host: str
    pid: int
    offset: int = -1
    stalled: int = 0


class JobAccepted(Body, frozen=True):
    """A submission became a job of this partition. `secrets` are the payload's paths that no sink may show."""

    type: str
    key: str
    payload: bytes | None
    payload_ref: str | None
    digest: str
    priority: int
    due: int | None
    submitted_at: int
    source_offset: int | None
    parent: str | None = None
    secrets: tuple[str, ...] = ()


class SubmissionDuplicated(Body, frozen=True):
    """A submission with the id of a job that exists; `same` tells whether its content is equal, too."""

    digest: str
    expected_digest: str
    same: bool
    source_offset: int


class SubmissionForwarded(Body, frozen=True):
    """A submission whose resource is at home on another partition was appended there instead."""

    to_partition: int
    key: str
    source_offset: int


class AttemptStarted(Body, frozen=True):
    """An attempt holds its job and, where the job has a resource, the resource's lease with a new fencing token."""

    lost: int
    timeout: int | None = None


class AttemptFailed(Body, frozen=True):
    """An attempt ended in a failure; what follows from it is the next event.

    `error` is what is kept of the exception (`runtime/kept.py`).
    """

    failure_class: str
    reason: str
    exception: str | None
    duration: int
    error: bytes | None = None


class AttemptLost(Body, frozen=True):
    """The attempt's worker is gone, or lost its partition; `lost` counts how often this job was lost."""

    reason: str
    worker: str
    lost: int


class AttemptHandedBack(Body, frozen=True):
    """An orderly shutdown gave the job back; no attempt is used up."""

    reason: str


class RetryScheduled(Body, frozen=True):
    """The job runs again at `due`."""

    failure_class: str
    delay: int
    due: int


class JobSucceeded(Body, frozen=True):
    """Terminal: the handler returned."""

    result: bytes | None
    result_ref: str | None
    duration: int


class JobFailed(Body, frozen=True):
    """The job will not be retried by itself; it moves to the investigation queue."""

    failure_class: str
    reason: str
    exception: str | None = None


class MovedToInvestigation(Body, frozen=True):
    """A person has to look. For what could not become a job, the original bytes and where they came from are kept."""

    failure_class: str
    reason: str
    source_topic: str | None = None
    source_offset: int | None = None
    original: bytes | None = None
    original_ref: str | None = None
    type: str | None = None


class JobCancelled(Body, frozen=True):
    """Terminal: an operator ended the job."""

    reason: str
    actor: str
    command_id: str


class CancelRequested(Body, frozen=True):
    """A running job was asked to stop."""

    reason: str
    actor: str
    command_id: str


class RetryRequested(Body, frozen=True):
    """An operator sent the job back; its attempt and loss budgets start anew, its idempotency keys do not."""

    reason: str
    actor: str
    command_id: str


class CommandRefused(Body, frozen=True):
    """An operator's command could not be carried out; says why."""

    command: str
    command_id: str
    reason: str


class GroupRewound(Body, frozen=True):
    """The worker group's input offset was set by an operator; `from_offset` -1 where none was committed."""

    group: str
    input_topic: str
    from_offset: int
    to_offset: int
    reason: str
    actor: str
    command_id: str


class LeaseRequested(Body, frozen=True):
    """An attempt asked for a resource that another one holds, and waits."""

    ttl: int
    holder: str


class LeaseAcquired(Body, frozen=True):
    """The attempt holds the event's resource under its fencing token.

    `holder_partition` is set where the job is at home on another partition, with the request that asked for it.
    """

    ttl: int
    waited: int
    holder_partition: int | None = None
    request_id: str | None = None


class LeaseRenewed(Body, frozen=True):
    """The holder is alive: the TTL counts anew."""

    ttl: int


class LeaseReleased(Body, frozen=True):
    """The holder gave the resource back."""

    held: int


class LeaseExpired(Body, frozen=True):
    """The TTL passed without a renewal, before the holder was done."""

    holder: str


class LeaseRefused(Body, frozen=True):
    """The resource was not free within the wait."""

    holder: str
    waited: int
    reason: str


class QuarantineAdded(Body, frozen=True):
    """From here on this partition starts no attempt of the job type."""

    type: str
    reason: str
    actor: str
    command_id: str


class QuarantineLifted(Body, frozen=True):
    """The job type may run again on this partition; what was held waits in its old order."""

    type: str
    reason: str
    actor: str
    command_id: str


class ScheduleSet(Body, frozen=True):
    """A periodic job's definition, when it is new or has changed; instants count from behind `since`."""

    schedule: str
    type: str
    expression: str
    tz: str
    missed: str
    since: int


class InstantPlanned(Body, frozen=True):
    """A planned instant was dealt with: its job was submitted in the same transaction (None: it was missed).

    `missed` counts the instants before it that were passed over.
    """

    schedule: str
    instant: int
    job_id: str | None
    missed: int


class ClockJumped(Body, frozen=True):
    """The wall clock was set forward or back, or the machine slept, while the partition was owned.

    `by` and `behind` are microseconds: `behind` how far the wall now lags behind the schedules' own timeline, where the
    partition has schedules. With `restart`, a jump forward was taken back: instants count from behind that time again.
    """

    by: int
    behind: int
    restart: int | None


class EffectResolved(Body, frozen=True):
    """What an operator told of an effect in doubt. `outcome`: succeeded, with its answer, or failed: not done."""

    key: str
    outcome: str
    answer: bytes | None
    answer_ref: str | None
    reason: str
    actor: str
    command_id: str


class CancelKept(Body, frozen=True):
    """A cancel of a job that this partition has not seen: it is carried out when the job is accepted here."""

    reason: str
    actor: str
    command_id: str


class CompensationStarted(Body, frozen=True):
    """The job failed for good: the effects of these steps are undone, in this order, before a person looks at it."""

    failure_class: str
    reason: str
    exception: str | None
    steps: tuple[str, ...]


class CompensationEnded(Body, frozen=True):
    """The compensations came to an end: which effects are undone, which are not, and why not."""

    done: tuple[str, ...]
    left: tuple[str, ...]
    reason: str | None


class PeerRaised(Body, frozen=True):
    """Another partition has a new owner: requests of its older epochs are refused from here on."""

    peer: int
    peer_epoch: int


class RequestRefused(Body, frozen=True):
    """A request of another partition's job was refused before anything was decided; says why."""

    request_id: str
    op: str
    from_partition: int
    from_epoch: int
    reason: str
