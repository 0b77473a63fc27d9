"""A job's trace as a recording: its attempts, and their steps with the answers that a replay gives again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.fold import head_of
from ..core.position import Position
from ..core.requests import LEASE, LOAD, RELEASE, RENEW, SAVE

_CLAIMS = (e.ClaimRequested, e.ClaimAnswered)
_OUTCOMES = (e.EffectSucceeded, e.EffectFailed, e.EffectInDoubt, e.EffectSkipped, e.IdempotencyConflict)
_LEASES = (
    e.LeaseRequested,
    e.LeaseAcquired,
    e.LeaseRenewed,
    e.LeaseReleased,
    e.LeaseExpired,
    e.LeaseRefused,
)
_WRITES = (e.StateChanged, e.WriteConflict, e.WriteFenced)
_KINDS: tuple[tuple[tuple[type[e.Body], ...], str], ...] = (
    (_LEASES, "lease"),
    ((*_OUTCOMES, e.EffectStarted, e.IdempotencyKeyUnstable, *_CLAIMS), "effect"),
    (_WRITES, "save"),
    ((e.DecisionRecorded,), "decision"),
    ((e.CacheRead,), "cache"),
    ((e.ChildEnqueued,), "enqueue"),
    ((e.NoteRecorded,), "note"),
)
#: Steps on resources elsewhere, by what was asked.
_REMOTE_KINDS = {LOAD: "load", SAVE: "save", LEASE: "lease", RENEW: "lease", RELEASE: "lease"}
#: Ends of an attempt that its handler did not bring about, with what an operator reads.
_EXTERNAL: dict[type[e.Body], str] = {
    e.AttemptLost: "lost",
    e.AttemptHandedBack: "handed_back",
    e.JobCancelled: "cancelled",
}
_END_BODIES: tuple[type[e.Body], ...] = (e.JobSucceeded, e.AttemptFailed, *_EXTERNAL)
#: What a home of global keys decides stands on the trace of whoever asked, and is no step of it.
_AT_HOME = (e.KeyClaimed, e.KeySettled)
_NO_STEP: tuple[type[e.Body], ...] = (*_END_BODIES, *_AT_HOME, e.DivergenceFound, e.JobFailed, e.MovedToInvestigation)
#: Failures that the queue decided, not the handler: a time-out, a lease or partition that was lost.
_QUEUE_ENDS = ("StepLost", "AttemptEnded")


class NoRecording(Exception):
    """The job has no such attempt, or its trace has no beginning any more. Names what is there."""


class Occurred(NamedTuple):
    """An event at its place."""

    seq: int
    event: e.Event
    record: e.EventRecord

    @property
    def body(self) -> Any:
        """The event's body."""
        return self.event.body


class Step:
    """A step of an attempt: its events in order, `index` among the attempt's steps from 0.

    `resolved` is a person's word about its call, which was in doubt.
    """

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.events: list[Occurred] = []
        self.resolved: Occurred | None = None

    @property
    def first(self) -> int:
        """Where the step begins."""
        return self.events[0].seq

    @property
    def kind(self) -> str:
        """What kind of call made it: effect, load, save, decision, cache, now, lease, note or enqueue."""
        asked = self.find(e.RemoteRequested, e.RemoteAnswered)
        if asked is not None:
            return _REMOTE_KINDS[asked.body.op]
        for bodies, kind in _KINDS:
            if self.find(*bodies) is not None:
                return kind
        return str(self.events[0].body.kind)

    def find(self, *kinds: type[e.Body]) -> Occurred | None:
        """The newest event with one of these bodies."""
        return next((at for at in reversed(self.events) if isinstance(at.body, kinds)), None)

    @property
    def outcome(self) -> Occurred | None:
        """An effect's newest outcome, None while it has only started."""
        newest = self.find(*_OUTCOMES, e.EffectStarted)
        return None if newest is None or isinstance(newest.body, e.EffectStarted) else newest

    @property
    def claim(self) -> Occurred | None:
        """What the home of the effect's global key answered, None for other keys and before it answered."""
        return self.find(e.ClaimAnswered)

    @property
    def first_answer(self) -> Occurred | None:
        """What the home of a resource elsewhere answered, None while it was only asked."""
        return next((at for at in self.events if isinstance(at.body, e.RemoteAnswered)), None)

    @property
    def done_at(self) -> int | None:
        """Where the call had its answer, None when the recording ends in the middle of it."""
        if self.find(e.RemoteRequested) is not None:
            answered = self.first_answer or self.find(e.DeadlockDetected)
            return None if answered is None else answered.seq
        if self.kind == "effect" and self.find(e.EffectStarted, *_OUTCOMES) is not None:
            return None if self.outcome is None else self.outcome.seq
        if self.kind == "lease":
            answered = next((at for at in self.events if not isinstance(at.body, e.LeaseRequested)), None)
            return None if answered is None else answered.seq
        return self.events[-1].seq

    def describe(self) -> dict[str, Any]:
        """The step for people and programs: its name, kind and, where it has one, its input's digest."""
        shown: dict[str, Any] = {"step": self.name, "kind": self.kind}
        digest = self._digest()
        return {**shown, "digest": digest} if digest is not None else shown

    def _digest(self) -> str | None:
        started, changed = self.find(e.EffectStarted, e.ClaimRequested), self.find(e.StateChanged)
        decided, child = self.find(e.DecisionRecorded), self.find(e.ChildEnqueued)
        if started is not None:
            return str(started.body.request_digest)
        if changed is not None:
            return values.digest(changed.body.changes)
        asked = self.find(e.RemoteRequested)
        if asked is not None:
            return None if asked.body.changes is None else values.digest(asked.body.changes)
        if decided is not None:
            return values.digest(decided.body.value)
        return None if child is None else str(child.body.digest)


class Attempt:
    """One attempt: its steps in the order in which they began, and how it ended.

    `compensates`: it ran no handler, but undid the effects of those before it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.started: Occurred | None = None
        self.steps: list[Step] = []
        self.by_name: dict[str, Step] = {}
        self.ends: list[Occurred] = []
        self.compensates = False
        self.events: list[Occurred] = []

    @property
    def end(self) -> Occurred | None:
        """The event that ended the attempt, None when the recording stops before it."""
        return self.ends[0] if self.ends else None

    @property
    def outcome(self) -> str:
        """`succeeded`, `failed`, `lost`, `handed_back`, `cancelled`, or `unfinished`."""
        if self.end is None:
            return "unfinished"
        if isinstance(self.end.body, e.JobSucceeded):
            return "succeeded"
        return _EXTERNAL.get(type(self.end.body), "failed")

    @property
    def by_handler(self) -> bool:
        """Whether the handler itself came to an end: it returned or raised."""
        if self.outcome == "succeeded":
            return True
        if self.outcome != "failed" or self.end is None:
            return False
        failed = self.end.body
        return failed.exception is not None and failed.exception.rpartition(".")[2] not in _QUEUE_ENDS

    @property
    def failed_step(self) -> str | None:
        """Where the attempt failed."""
        return self.end.event.step if self.end is not None and self.outcome == "failed" else None

    @property
    def ends_here(self) -> str | None:
        """For an unfinished recording, how far it goes; None when the attempt ended."""
        if self.end is not None:
            return None
        open_steps = [step.name for step in self.steps if step.done_at is None]
        if open_steps:
            return f"ends here: step {open_steps[0]} started, outcome unknown"
        last = f"behind step {self.steps[-1].name}" if self.steps else "before the first step"
        return f"ends here: {last}, outcome unknown"

    @property
    def token(self) -> int | None:
        """The fencing token under which the attempt held its job's resource."""
        return None if self.started is None else self.started.event.fencing_token

    @property
    def code_version(self) -> str | None:
        """The code that ran."""
        return None if self.started is None else self.started.record.code_version


class Recording:
    """A job's events as far as they are readable. `damaged` says where and why reading stopped early.

    `gone` tells of each run of records that the log does not hold any more the events on both sides of it.
    """

    def __init__(
        self, job_id: str, partition: int, damaged: str | None = None, gone: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.job_id = job_id
        self.partition = partition
        self.damaged = damaged
        self.gone = gone
        self.events: list[Occurred] = []
        self.attempts: dict[int, Attempt] = {}
        self.accepted: Occurred | None = None
        self._compensating = False

    @classmethod
    def of(
        cls,
        job_id: str,
        partition: int,
        records: Iterable[e.EventRecord],
        damaged: str | None = None,
        gone: tuple[tuple[int, int], ...] = (),
    ) -> Recording:
        """The recording of a job's records in log order."""
        recording = cls(job_id, partition, damaged, gone)
        for at in occurred(records):
            recording._take(at)
        return recording

    def _take(self, at: Occurred) -> None:
        self.events.append(at)
        if isinstance(at.body, e.JobAccepted):
            self.accepted = at
        if isinstance(at.body, e.EffectResolved):
            self._resolve(at)
            return
        if isinstance(at.body, e.CompensationStarted | e.CompensationEnded):
            self._compensating = isinstance(at.body, e.CompensationStarted) or bool(at.body.left)
            return
        if at.record.attempt < 1:
            return
        attempt = self.attempts.setdefault(at.record.attempt, Attempt(at.record.attempt))
        attempt.events.append(at)
        if isinstance(at.body, e.AttemptStarted):
            attempt.started, attempt.compensates = at, self._compensating
        elif isinstance(at.body, _END_BODIES):
            attempt.ends.append(at)
        elif at.event.step is not None and not isinstance(at.body, _NO_STEP):
            _add_step(attempt, at.event.step, at)

    def _resolve(self, at: Occurred) -> None:
        for step in (step for attempt in self.attempts.values() for step in attempt.steps):
            doubt = step.outcome
            if doubt is not None and isinstance(doubt.body, e.EffectInDoubt) and doubt.body.key == at.body.key:
                step.resolved = at

    def attempt(self, number: int | None = None) -> Attempt:
        """An attempt that ran the handler, the newest by default. Raises NoRecording naming those that there are."""
        begun = [one for _, one in sorted(self.attempts.items()) if one.started is not None]
        known = [one.number for one in begun if not one.compensates]
        if number is not None and number in {one.number for one in begun} - set(known):
            raise NoRecording(
                f"attempt {number} of job {self.job_id} undid its effects and ran no handler: see `rewindq trace`"
            )
        wanted = number if number is not None else (known[-1] if known else 0)
        if wanted not in known:
            there = ", ".join(map(str, known)) or "none"
            what = f"no attempt {wanted}" if number is not None else "no attempt yet"
            raise NoRecording(f"job {self.job_id} has {what} in its trace (recorded attempts: {there})")
        return self.attempts[wanted]

    def check_whole(self, attempt: Attempt) -> None:
        """Raises NoRecording where events of an attempt are not in the log any more: nothing can be compared then."""
        started, end = attempt.started, attempt.end
        assert started is not None
        for before, after in self.gone:
            if after > started.seq and (end is None or before < end.seq):
                raise NoRecording(
                    f"the log does not hold all of attempt {attempt.number} of job {self.job_id} any more: events "
                    f"behind {self.position(max(before, started.seq))} were removed; `rewindq trace` shows what is left"
                )

    def head(self) -> s.JobHead | None:
        """What never changes about the job, None when the trace has lost its beginning."""
        if self.accepted is None:
            return None
        return head_of(self.accepted.body, self.accepted.record, self.accepted.seq)

    def position(self, seq: int) -> str:
        """A place in the log as it is printed."""
        return str(Position(self.partition, seq))


def occurred(records: Iterable[e.EventRecord]) -> Iterator[Occurred]:
    """The records' events, each with its own number."""
    for record in records:
        for at, event in enumerate(record.events):
            yield Occurred(record.seq + at, event, record)


def _add_step(attempt: Attempt, name: str, at: Occurred) -> None:
    step = attempt.by_name.get(name)
    if step is None:
        step = attempt.by_name[name] = Step(name, len(attempt.steps))
        attempt.steps.append(step)
    step.events.append(at)
