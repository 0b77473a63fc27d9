"""What must hold in a partition's events, checked by hand-written tables that share no code with the fold.

Two implementations of the same rules have to agree: a fault in `core.evolve` or in a decision shows up here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import events as e
from ..core import requests
from ..core.global_keys import is_global
from ..core.merge import Merged
from .check_keys import KeyChecks
from .revert_checks import RevertChecks

QUEUED = "queued"
RUNNING = "running"
FAILING = "failing"
FAILED = "failed"
PARKED = "investigation"
SUCCEEDED = "succeeded"
CANCELLED = "cancelled"
#: Before its acceptance a job is nowhere.
NOWHERE = ""

#: Event -> (where the job may stand before it, where it stands after it). `failing` and `failed` are passed through
#: within one decision and never rest.
TRANSITIONS: dict[type[e.Body], tuple[frozenset[str], str]] = {
    e.JobAccepted: (frozenset({NOWHERE}), QUEUED),
    e.AttemptStarted: (frozenset({QUEUED}), RUNNING),
    e.AttemptFailed: (frozenset({RUNNING}), FAILING),
    e.RetryScheduled: (frozenset({FAILING}), QUEUED),
    e.AttemptLost: (frozenset({RUNNING}), QUEUED),
    e.AttemptHandedBack: (frozenset({RUNNING}), QUEUED),
    e.JobFailed: (frozenset({QUEUED, RUNNING, FAILING}), FAILED),
    e.MovedToInvestigation: (frozenset({FAILED, NOWHERE}), PARKED),
    e.RetryRequested: (frozenset({PARKED}), QUEUED),
    e.CancelRequested: (frozenset({RUNNING}), RUNNING),
    e.JobCancelled: (frozenset({QUEUED, RUNNING, PARKED}), CANCELLED),
    e.JobSucceeded: (frozenset({RUNNING}), SUCCEEDED),
    e.CompensationStarted: (frozenset({FAILING, QUEUED}), QUEUED),
    e.CompensationEnded: (frozenset({RUNNING, FAILING, QUEUED}), FAILING),
    e.UniqueDuplicated: (frozenset({QUEUED}), CANCELLED),
}
#: Events that change a job and leave it where it is.
STAYS = frozenset({e.KeyBlocked, e.UniqueTaken})
_RESTING = frozenset({QUEUED, RUNNING, PARKED, SUCCEEDED, CANCELLED})

STARTED = "started"
DOUBTED = "in doubt"
DONE = "done"
UNDONE = "not done"
UNKNOWN = ""

#: Effect event -> (what may be known under its key before it, what is known after it; None: unchanged).
EFFECTS: dict[type[e.Body], tuple[frozenset[str], str | None]] = {
    e.EffectStarted: (frozenset({UNKNOWN, UNDONE, DOUBTED}), STARTED),
    e.EffectSucceeded: (frozenset({STARTED, DOUBTED}), DONE),
    e.EffectFailed: (frozenset({STARTED, DOUBTED}), UNDONE),
    e.EffectInDoubt: (frozenset({STARTED, DOUBTED}), DOUBTED),
    e.EffectSkipped: (frozenset({DONE}), None),
}
#: What a person says of a call in doubt -> what is known after it.
RESOLUTIONS = {"succeeded": DONE, "failed": UNDONE}


#: What a home partition decides for a job of another one.
_DECIDED = (e.StateChanged, e.WriteConflict, e.WriteFenced)


class Violation(NamedTuple):
    """A broken rule: which, where, about which job, and what was found."""

    kind: str
    position: str
    job_id: str | None
    detail: str


class RemoteWrite(NamedTuple):
    """A write that a job of another partition asked for."""

    resource: str | None
    version: int | None
    job_id: str | None


class _Job:
    """Where a job stands, as far as the checks need it."""

    __slots__ = ("accepted", "attempt", "calls", "place", "type")

    def __init__(self) -> None:
        self.type = ""
        self.place = NOWHERE
        self.attempt = 0
        self.accepted = 0
        self.calls: set[str] = set()


class PartitionChecks:
    """The checks of one partition. Feed it every merged record in order, then call `end`."""

    def __init__(self, partition: int, topics: dict[str, str], report: Callable[[Violation], None]) -> None:
        """`topics` maps a topic's full name to what bodies call it, for example `lifecycle`."""
        self.partition = partition
        self.events = 0
        self.jobs: dict[str, _Job] = {}
        self.stale: list[Merged] = []
        #: Offsets of input records that some event accounts for, by input topic word.
        self.taken_in: dict[str, set[int]] = {"jobs": set(), "commands": set()}
        self.commands: set[str] = set()
        #: Ranges of the jobs topic that an operator skipped by setting the group forward.
        self.skipped: list[range] = []
        #: Requests of other partitions that were decided here: by what caused them, or, refused ones, by their id.
        self.decided: set[str] = set()
        #: Writes here for jobs of other partitions, by event number; and what jobs of this one were told of theirs.
        self.written: dict[int, RemoteWrite] = {}
        self.told: list[tuple[str, RemoteWrite]] = []
        self.keys = KeyChecks(partition, self._broken)
        self._topics = topics
        self._report = report
        self._seq = 0
        self._lamport = -1
        self._keys: dict[str, str] = {}
        self._callers: dict[str, str] = {}
        self._tokens: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        #: Resource -> the failed jobs that block it.
        self._blocked: dict[str, set[str]] = {}
        #: Submissions that wait for a worker which knows their type.
        self._held: set[str] = set()
        #: Type and unique key -> who has taken it last, and until when.
        self._unique: dict[tuple[str, str], e.UniqueTaken] = {}
        self._unique_holders: dict[tuple[str, str], str] = {}
        self._quarantined: set[str] = set()
        self.reverts = RevertChecks(self._broken)

    # --- records ---

    def take(self, merged: Merged) -> None:
        """Checks the next record."""
        record = merged.record
        if merged.stale is not None:
            self.stale.append(merged)
            return
        if record.seq == e.UNNUMBERED:
            return
        self._check_record(merged)
        for index, event in enumerate(record.events):
            self._check_event(merged.topic, record, event, record.seq + index)
        self.events += len(record.events)

    def _check_record(self, merged: Merged) -> None:
        record = merged.record
        if record.seq != self._seq:
            self._broken("seq_gap", record.seq, record.job_id, f"event {self._seq} was expected")
        self._seq = record.seq + len(record.events)
        if record.lamport <= self._lamport:
            detail = f"lamport {record.lamport} does not follow {self._lamport}"
            self._broken("lamport", record.seq, record.job_id, detail)
        self._lamport = record.lamport + len(record.events) - 1
        if not record.events:
            self._broken("empty_record", record.seq, record.job_id, "the record has no events")
        self._check_cause(record)

    def _check_cause(self, record: e.EventRecord) -> None:
        own, at, seq = (record.causation_id or "").partition("@")
        if at and own == f"p{self.partition}" and seq.isdecimal() and int(seq) >= record.seq:
            self._broken("causation", record.seq, record.job_id, f"its cause {record.causation_id} is not before it")

    def _check_event(self, topic: str, record: e.EventRecord, event: e.Event, seq: int) -> None:
        body = event.body
        if body.topic != self._topics.get(topic):
            self._broken("wrong_topic", seq, record.job_id, f"{type(body).__name__} stands on {topic}")
        self._note_input(body)
        if isinstance(body, e.QuarantineAdded):
            self._quarantined.add(body.type)
        elif isinstance(body, e.QuarantineLifted):
            self._quarantined.discard(body.type)
        elif isinstance(body, e.KeysExpired):
            self._check_expiry(body, seq)
        if record.job_id is None:
            return
        job = self.jobs.get(record.job_id)
        self._check_hold(record.job_id, body, seq)
        self.keys.take(record, body, seq)
        if type(body) in TRANSITIONS:
            job = self.jobs.setdefault(record.job_id, _Job())
            self._check_transition(job, record, event, seq)
        elif isinstance(body, _DECIDED) and job is None and self._asked_elsewhere(record):
            self.decided.add(record.causation_id or "")
            if isinstance(body, e.StateChanged):
                self.written[seq] = RemoteWrite(event.resource, event.resource_version, record.job_id)
        elif isinstance(body, e.RevertDecided | e.StateReverted):
            self.reverts.take(record.job_id, event, seq, job is None or job.place in (PARKED, SUCCEEDED, CANCELLED))
        elif isinstance(body, e.DomainBody):
            self._check_running(job, record, body, seq)
        if isinstance(body, e.KeyBlocked):
            self._blocked.setdefault(record.resource or "", set()).add(record.job_id)
        elif isinstance(body, e.UniqueTaken) and job is not None:
            self._check_unique(job, record, body, seq)
        elif type(body) in EFFECTS and job is not None:
            self._check_effect(job, record, body, seq)
        elif isinstance(body, e.EffectResolved):
            self._check_resolution(job, record, body, seq)
        elif isinstance(body, e.StateChanged | e.StateReverted):
            self._check_change(record, event, body, seq)
        elif isinstance(body, e.LeaseAcquired):
            self._check_grant(event.resource, event.fencing_token, record.job_id, seq)
        elif isinstance(body, e.ClaimAnswered) and body.outcome == requests.CLAIMED and body.reason is not None:
            self._keys[body.key] = DOUBTED
        elif isinstance(body, e.RemoteAnswered) and (body.op, body.outcome) == (requests.SAVE, requests.DONE):
            self.told.append((body.position or "", RemoteWrite(event.resource, event.resource_version, record.job_id)))

    @property
    def next_seq(self) -> int:
        """The number behind the last event that was read."""
        return self._seq

    def _asked_elsewhere(self, record: e.EventRecord) -> bool:
        """Whether the record answers a job of another partition: its cause stands there."""
        home, at, _ = (record.causation_id or "").partition("@")
        return bool(at) and home != f"p{self.partition}"

    def _note_input(self, body: e.Body) -> None:
        if isinstance(body, e.JobAccepted | e.SubmissionDuplicated | e.SubmissionForwarded | e.SubmissionHeld):
            if body.source_offset is not None:
                self.taken_in["jobs"].add(body.source_offset)
        elif isinstance(body, e.MovedToInvestigation) and body.source_topic is not None:
            word = self._topics.get(body.source_topic)
            if word in self.taken_in and body.source_offset is not None:
                self.taken_in[word].add(body.source_offset)
        elif isinstance(body, e.GroupRewound) and body.to_offset > body.from_offset:
            self.skipped.append(range(body.from_offset, body.to_offset))
        elif isinstance(body, e.RequestRefused):
            self.decided.add(body.request_id)
        command = getattr(body, "command_id", None)
        if command is not None:
            self.commands.add(command)

    # --- rules ---

    def _check_transition(self, job: _Job, record: e.EventRecord, event: e.Event, seq: int) -> None:
        body = event.body
        allowed, after = TRANSITIONS[type(body)]
        if job.place not in allowed:
            kind = "second_outcome" if job.place in (SUCCEEDED, CANCELLED) else "transition"
            detail = f"{type(body).__name__} cannot follow {job.place or 'nothing: it was never accepted'}"
            self._broken(kind, seq, record.job_id, detail)
        if isinstance(body, e.JobAccepted):
            job.accepted, job.type = seq, body.type
        elif isinstance(body, e.AttemptStarted):
            if job.type in self._quarantined:
                self._broken("quarantine", seq, record.job_id, f"an attempt started while {job.type} was quarantined")
            if record.attempt != job.attempt + 1:
                detail = f"attempt {record.attempt} follows attempt {job.attempt}"
                self._broken("attempt", seq, record.job_id, detail)
            job.attempt = record.attempt
            if record.resource is not None:
                self._check_grant(record.resource, event.fencing_token, record.job_id, seq)
                self._check_block(job, record.resource, record.job_id, seq)
        if after in (SUCCEEDED, CANCELLED) and record.resource is not None and record.job_id is not None:
            self._blocked.get(record.resource, set()).discard(record.job_id)
        if job.place == RUNNING and after != RUNNING:
            self._check_calls_ended(job, record, body, seq)
        job.place = after

    def _check_unique(self, job: _Job, record: e.EventRecord, body: e.UniqueTaken, seq: int) -> None:
        key = (job.type, body.key)
        holder = self._unique_holders.get(key)
        if holder is not None and holder != record.job_id and self.jobs[holder].place in (QUEUED, RUNNING):
            until = self._unique[key].until
            # A decision is made a little before its record's time, never after.
            if until is None or record.timestamp < until:
                detail = f"it takes the unique key {body.key!r} that {holder} holds, which has not ended"
                self._broken("second_unique", seq, record.job_id, detail)
        self._unique[key], self._unique_holders[key] = body, record.job_id or ""

    def _check_hold(self, job_id: str, body: e.Body, seq: int) -> None:
        if isinstance(body, e.SubmissionHeld):
            self._held.add(job_id)
        elif isinstance(body, e.SubmissionReleased):
            if job_id not in self._held:
                self._broken("hold", seq, job_id, "it was released and was not held")
            self._held.discard(job_id)
        elif isinstance(body, e.JobAccepted) and job_id in self._held:
            self._broken("hold", seq, job_id, "it was accepted and is still held")

    def _check_block(self, job: _Job, resource: str, job_id: str | None, seq: int) -> None:
        ahead = [other for other in self._blocked.get(resource, ()) if self.jobs[other].accepted < job.accepted]
        if ahead:
            detail = f"it started while {sorted(ahead)[0]}, which failed before it, blocks {resource}"
            self._broken("overtook", seq, job_id, detail)

    def _check_calls_ended(self, job: _Job, record: e.EventRecord, body: e.Body, seq: int) -> None:
        for key in sorted(job.calls):
            detail = f"{type(body).__name__} ends attempt {job.attempt}, and the call with key {key!r} has no outcome"
            self._broken("effect_without_outcome", seq, record.job_id, detail)
        job.calls.clear()

    def _check_running(self, job: _Job | None, record: e.EventRecord, body: e.Body, seq: int) -> None:
        if job is None or job.place != RUNNING or job.attempt != record.attempt:
            place = "never accepted" if job is None else f"{job.place} in attempt {job.attempt}"
            detail = f"{type(body).__name__} of attempt {record.attempt}, but the job is {place}"
            self._broken("step_outside_attempt", seq, record.job_id, detail)

    def _check_effect(self, job: _Job, record: e.EventRecord, body: Any, seq: int) -> None:
        allowed, after = EFFECTS[type(body)]
        known = self._keys.get(body.key, UNKNOWN)
        # The call under a global key may have been made for a job of another partition.
        if known not in allowed and (after is not None or not is_global(body.key)):
            kind = "second_success" if known == DONE else "effect_order"
            detail = f"{type(body).__name__} under key {body.key!r}, which is {known or 'not started'}"
            self._broken(kind, seq, record.job_id, detail)
        if after is None:
            return
        self._keys[body.key] = after
        if after == STARTED:
            self._callers[body.key] = record.job_id or ""
            job.calls.add(body.key)
        else:
            job.calls.discard(body.key)

    def _check_expiry(self, body: e.KeysExpired, seq: int) -> None:
        """What is dropped had an outcome, and its job is over; from then on nobody knows whether it was done."""
        for key in body.keys:
            known, job = self._keys.get(key, UNKNOWN), self.jobs.get(self._callers.get(key, ""))
            if known not in (DONE, UNDONE) or job is None or job.place not in (SUCCEEDED, CANCELLED):
                place = "was never accepted" if job is None else f"is {job.place}"
                detail = f"key {key!r}, which is {known or 'not started'}, was dropped while its job {place}"
                self._broken("expiry", seq, None, detail)
            self._keys[key] = DOUBTED if known == DONE else UNKNOWN

    def _check_resolution(self, job: _Job | None, record: e.EventRecord, body: e.EffectResolved, seq: int) -> None:
        known = self._keys.get(body.key, UNKNOWN)
        if known != DOUBTED or job is None or job.place == RUNNING:
            place = "was never accepted" if job is None else f"is {job.place}"
            detail = f"key {body.key!r}, which is {known or 'not started'}, was resolved while the job {place}"
            self._broken("resolution", seq, record.job_id, detail)
        self._keys[body.key] = RESOLUTIONS.get(body.outcome, UNKNOWN)

    def _check_change(
        self, record: e.EventRecord, event: e.Event, body: e.StateChanged | e.StateReverted, seq: int
    ) -> None:
        key = event.resource or record.resource or ""
        current = self._versions.get(key, 0)
        if body.parent != current or event.resource_version != current + 1:
            detail = f"{key} version {event.resource_version} on parent {body.parent} follows version {current}"
            self._broken("version", seq, record.job_id, detail)
        self._versions[key] = event.resource_version or current + 1
        token = event.fencing_token
        if token is not None and token < self._tokens.get(key, 0):
            detail = f"{key} was written under token {token} after token {self._tokens[key]} was granted"
            self._broken("stale_token_accepted", seq, record.job_id, detail)

    def _check_grant(self, resource: str | None, token: int | None, job_id: str | None, seq: int) -> None:
        if resource is None or token is None:
            self._broken("token", seq, job_id, f"{resource or 'a resource'} is granted without a fencing token")
            return
        newest = self._tokens.get(resource, 0)
        if token <= newest:
            self._broken("token", seq, job_id, f"{resource} is granted under token {token} after token {newest}")
        self._tokens[resource] = max(token, newest)

    # --- end ---

    def end(self) -> Counter[str]:
        """Checks what must hold at the log's end; returns the number of jobs by where they stand."""
        for job_id, job in self.jobs.items():
            if job.place not in _RESTING:
                detail = f"the log ends with the job {job.place or 'nowhere'}: no decision ended there"
                self._broken("unfinished_decision", self._seq - 1, job_id, detail)
        self.reverts.end(self._seq - 1)
        return Counter(job.place for job in self.jobs.values())

    def _broken(self, kind: str, seq: int, job_id: str | None, detail: str) -> None:
        self._report(Violation(kind, f"p{self.partition}@{seq}", job_id, detail))
