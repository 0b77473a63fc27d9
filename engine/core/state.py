"""The fold's state: what the store holds, as immutable records.

Each record is written to the store as a MessagePack array of its fields in order, so fields are only ever added at
the end and with a default. A store of another `STATE_FORMAT` is rebuilt from the log.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

#: Raised when the meaning of a stored record changes; stores of another number are rebuilt.
STATE_FORMAT = 1

#: Statuses of a job, as INTERFACE names them.
WAITING = "waiting"
DELAYED = "delayed"
RUNNING = "running"
RETRYING = "retrying"
SUCCEEDED = "succeeded"
INVESTIGATION = "investigation"
CANCELLED = "cancelled"

TERMINAL = frozenset({SUCCEEDED, CANCELLED})
#: Not running, and not over: the next attempt is still to start.
QUEUED = frozenset({WAITING, DELAYED, RETRYING})
#: What `--until-idle` waits for.
ACTIVE = QUEUED | {RUNNING}


class Stored(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Base of what the store holds."""


class JobHead(Stored, frozen=True, array_like=True):
    """What never changes about a job."""

    type: str
    key: str
    resource: str | None
    priority: int
    submitted_at: int
    accepted_seq: int
    digest: str
    payload: bytes | None = None
    payload_ref: str | None = None
    trace_id: str | None = None
    correlation_id: str | None = None
    parent: str | None = None
    secrets: tuple[str, ...] = ()
    source_offset: int | None = None


class Failure(Stored, frozen=True, array_like=True):
    """Why an attempt or a job failed, and at which step."""

    failure_class: str
    reason: str
    step: str | None = None


class Holds(Stored, frozen=True, array_like=True):
    """What a job that is not over keeps from others.

    `blocks`: later jobs of its resource wait for its end; `unique`: the unique key of its type that it has taken.
    """

    blocks: bool = False
    unique: str | None = None


class JobState(Stored, frozen=True, array_like=True):
    """Where a job stands. `failures` and `lost` count since it was accepted or last sent back by an operator.

    `compensating` is why it failed for good, until all that it did outside is undone.
    """

    status: str
    attempt: int = 0
    last_seq: int = 0
    due: int | None = None
    worker: str | None = None
    started_at: int | None = None
    finished_at: int | None = None
    failure: Failure | None = None
    failures: dict[str, int] = {}
    lost: int = 0
    token: int | None = None
    cancel_reason: str | None = None
    result: bytes | None = None
    result_ref: str | None = None
    compensating: Failure | None = None
    holds: Holds | None = None


class OpenEffects(Stored, frozen=True, array_like=True):
    """Of a job that is not over: whether an attempt runs, and its effects' keys by step (`True`: no outcome yet).

    `claims` are the global keys by step that the attempt has asked for or holds, each with its request.
    """

    running: bool
    effects: dict[str, tuple[str, bool]] = {}
    claims: dict[str, tuple[str, str]] = {}


class Lease(Stored, frozen=True, array_like=True):
    """The newest grant of a resource. `released` is never set for a job's own resource: its attempt's end ends it."""

    token: int
    holder: str
    attempt: int
    ttl: int | None = None
    released: bool = False


class KeyBlock(Stored, frozen=True, array_like=True):
    """The failed jobs that a resource's later jobs wait behind, as (number of acceptance, id), oldest first."""

    jobs: tuple[tuple[int, str], ...]

    def ahead_of(self, accepted_seq: int) -> str | None:
        """The first of them that was accepted before a job; None: it may run."""
        first, job_id = self.jobs[0]
        return job_id if first < accepted_seq else None


class Held(Stored, frozen=True, array_like=True):
    """A submission that waits for an owner which knows its type: the record's bytes and where they came from."""

    type: str
    digest: str
    original: bytes
    source_offset: int
    held_seq: int


class UniqueMark(Stored, frozen=True, array_like=True):
    """Who holds a unique key, and for how long at most (microseconds since 1970)."""

    job_id: str
    until: int | None = None

    def holds(self, now: int) -> bool:
        """Whether it keeps others out at a time."""
        return self.until is None or now < self.until


class Unposted(Stored, frozen=True, array_like=True):
    """A parked job's entry that the investigation topic has not got yet; `body` are its event's fields in order."""

    job_id: str
    attempt: int
    resource: str | None
    trace_id: str | None
    correlation_id: str | None
    step: str | None
    body: tuple[str, str, str | None, int | None, bytes | None, str | None, str | None]


class TypeNote(Stored, frozen=True, array_like=True):
    """Why jobs of a type wait."""

    reason: str


class Quarantine(Stored, frozen=True, array_like=True):
    """A job type's quarantine on a partition: whether it holds now, why, who and since when (microseconds).

    `commands` are the ids of its newest commands, so that one that comes again changes nothing.
    """

    active: bool
    reason: str
    actor: str
    since: int
    commands: tuple[str, ...] = ()


class Schedule(Stored, frozen=True, array_like=True):
    """A periodic job's definition and how far it is planned: `last` is the newest instant dealt with.

    Instants count from behind `since` or `last`, whichever is later (microseconds). `job_id` is the newest job's.
    """

    type: str
    expression: str
    tz: str
    missed: str
    since: int
    last: int | None = None
    job_id: str | None = None


#: Cancels of jobs not seen yet that a partition keeps.
KEPT_CANCELS_MAX = 10_000


class KeptCancel(Stored, frozen=True, array_like=True):
    """A cancel that waits for its job; `number` counts those of the partition."""

    reason: str
    actor: str
    command_id: str
    number: int


class Answer(Stored, frozen=True, array_like=True):
    """What became of an operator's command: done, kept, or refused with a reason."""

    state: str
    reason: str | None = None


class Lent(Stored, frozen=True, array_like=True):
    """A lease that a job of another partition holds now: whom to tell of its end, and under which request."""

    token: int
    holder: str
    attempt: int
    ttl: int
    partition: int
    request_id: str


STARTED = "started"
DONE = "succeeded"
FAILED = "failed"
IN_DOUBT = "in_doubt"
#: It succeeded, and what was known of it was dropped: all that is left is the call's digest and who made it.
EXPIRED = "expired"


class Idempotency(Stored, frozen=True, array_like=True):
    """What is known of an effect under its key, since `changed_at` (microseconds).

    At the home of a global key, `claim_id` is the newest claim's request and `claimant` the partition that it came
    from; while the claim stands, `reason` says why the call may have been done before.
    """

    status: str
    request_digest: str
    job_id: str
    attempt: int
    step: str
    answer: bytes | None = None
    answer_ref: str | None = None
    reason: str | None = None
    changed_at: int = 0
    compensation: bytes | None = None
    compensation_ref: str | None = None
    claim_id: str | None = None
    claimant: int | None = None


class Reverted(Stored, frozen=True, array_like=True):
    """Of a version that takes back what its job changed: who asked for it, why, and of which attempt (None: all)."""

    reason: str
    actor: str
    command_id: str
    attempt: int | None


class Reverts(Stored, frozen=True, array_like=True):
    """The ids of the newest commands that reverted a job's changes of an aggregate: none is carried out twice."""

    commands: tuple[str, ...]


class AggregateVersion(Stored, frozen=True, array_like=True):
    """One stored version of an aggregate: a delta on its parent, or every few versions a full snapshot.

    `parent_seq` is the position of version `version - 1` (None for the first).
    """

    version: int
    parent_seq: int | None
    snapshot_seq: int
    job_id: str | None
    step: str | None
    token: int | None
    changes: bytes
    deleted: tuple[str, ...] = ()
    snapshot: bytes | None = None
    attempt: int = 0
    reverted: Reverted | None = None

    @property
    def writer(self) -> str | None:
        """Who wrote it, for people."""
        return self.job_id if self.reverted is None else f"a revert of {self.job_id}"


class Aggregate(msgspec.Struct, frozen=True):
    """An aggregate as of a version. `seq` None and version 0: it does not exist."""

    version: int
    seq: int | None
    snapshot_seq: int
    data: dict[str, Any]
    writer: str | None = None


NO_AGGREGATE = Aggregate(0, None, 0, {})

State: TypeAlias = (
    JobHead
    | JobState
    | OpenEffects
    | KeptCancel
    | Lease
    | Lent
    | Idempotency
    | AggregateVersion
    | Quarantine
    | Schedule
    | KeyBlock
    | Held
    | TypeNote
    | UniqueMark
    | Reverts
    | Unposted
    | Answer
)

_encoder = msgspec.msgpack.Encoder()
encode_state = _encoder.encode
decode_head = msgspec.msgpack.Decoder(JobHead).decode
decode_job = msgspec.msgpack.Decoder(JobState).decode
decode_cancel = msgspec.msgpack.Decoder(KeptCancel).decode
decode_open = msgspec.msgpack.Decoder(OpenEffects).decode
decode_lease = msgspec.msgpack.Decoder(Lease).decode
decode_lent = msgspec.msgpack.Decoder(Lent).decode
decode_idempotency = msgspec.msgpack.Decoder(Idempotency).decode
decode_version = msgspec.msgpack.Decoder(AggregateVersion).decode
decode_quarantine = msgspec.msgpack.Decoder(Quarantine).decode
decode_schedule = msgspec.msgpack.Decoder(Schedule).decode
decode_block = msgspec.msgpack.Decoder(KeyBlock).decode
decode_held = msgspec.msgpack.Decoder(Held).decode
decode_unposted = msgspec.msgpack.Decoder(Unposted).decode
decode_unique = msgspec.msgpack.Decoder(UniqueMark).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_note = msgspec.msgpack.Decoder(TypeNote).decode
decode_reverts = msgspec.msgpack.Decoder(Reverts).decode

#: Kinds of keys in the store's family of marks.
BLOCKED_KEY = "key\0"
HELD = "held\0"
TYPE_NOTE = "type\0"
UNIQUE = "unique\0"
REVERTS = "revert\0"
UNPOSTED = "unposted\0"
ANSWER = "answer\0"


def ready_key(priority: int, accepted_seq: int) -> bytes:
    """Orders waiting jobs by priority (higher first), then age."""
    return (32767 - priority).to_bytes(2, "big") + accepted_seq.to_bytes(8, "big")


def timer_key(due: int, job_id: str) -> bytes:
    """Orders delayed and retrying jobs by their due time."""
    return due.to_bytes(8, "big") + job_id.encode()


def unposted_key(seq: int) -> str:
    """The mark of an entry that is to be posted, in the order of their events."""
    return f"{UNPOSTED}{seq:020d}"


def unique_key(job_type: str, key: str) -> str:
    """The mark of a type's unique key."""
    return f"{UNIQUE}{job_type}\0{key}"


def reverts_key(job_id: str, resource: str) -> str:
    """The mark of the reverts of a job's changes of an aggregate."""
    return f"{REVERTS}{job_id}\0{resource}"


def answer_key(job_id: str, command_id: str) -> str:
    """The mark of a command's answer. A job id holds no NUL, so no two commands share one."""
    return f"{ANSWER}{job_id}\0{command_id}"


def trace_key(job_id: str, seq: int) -> bytes:
    """Orders the records of a job's trace. A job id holds no NUL, so no job's keys begin with another's."""
    return job_id.encode() + b"\0" + seq.to_bytes(8, "big")
