"""Random histories of one partition that the fold accepts: jobs, attempts, effects, leases and state changes."""

from __future__ import annotations

from hypothesis import strategies as st

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.events import Body, Event, EventRecord
from rewindq.engine.core.fold import apply_record
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.working import WorkingSet

START = 1_790_000_000_000_000
JOBS = ("a", "b", "c", "d")
RESOURCES = ("order:1", "order:2")
KEYS = ("k1", "k2")
FIELDS = ("x", "y", "z")
_values = st.none() | st.integers(-9, 9) | st.sampled_from(["", "é", "long " * 5]) | st.decimals(0, 1, places=2)


class Writer:
    """Chooses events that are allowed next, and folds them as an owner does."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.states = WorkingSet(MemoryStore())
        self.records: list[EventRecord] = []
        self._seq = 0

    def step(self) -> None:
        """One more record, about one job."""
        job_id = self._draw(st.sampled_from(JOBS))
        job = self.states.job(job_id)
        head = self.states.head(job_id)
        attempt = job.attempt if job is not None else 0
        resource = head.resource if head is not None else self._draw(st.none() | st.sampled_from(RESOURCES))
        chosen = self._draw(st.sampled_from(self._choices(job_id, job)))
        if isinstance(chosen.body, e.AttemptStarted):
            attempt += 1
            held = self.states.lease(resource) if resource is not None else None
            token = None if resource is None else (held.token if held is not None else 0) + 1
            chosen = Event(chosen.body, fencing_token=token)
        count = len(self.records)
        record = EventRecord(
            self._seq, self._seq, START + count, 1, f"w{count % 2}", job_id, attempt, (chosen,), resource
        )
        apply_record(self.states, record)
        self._seq = record.next_seq
        self.records.append(record)

    def _choices(self, job_id: str, job: s.JobState | None) -> list[Event]:
        due = self._draw(st.none() | st.integers(START, START + 9))
        if job is None:
            held = self.states.held_submission(job_id)
            if held is not None:
                return [Event(e.SubmissionReleased("known by now"))]
            accepted = e.JobAccepted("t", job_id, b"{}", None, "d", self._draw(st.integers(-9, 9)), due, START, 0)
            kept = Event(e.CancelKept("early", "ann", "c"))
            return [
                Event(accepted),
                kept,
                Event(e.MovedToInvestigation("validation", "bytes", "jobs", 3, b"\xff")),
                Event(e.SubmissionHeld("new", "d", b"bytes", 3)),
                Event(e.TypeNoted("new", self._draw(st.none() | st.just("nobody knows it")))),
            ]
        cancelled = Event(e.JobCancelled("wrong", "ann", "c"), status="fail")
        if job.status == s.INVESTIGATION:
            return [cancelled, Event(e.RetryRequested("fixed", "ann", "c"))]
        if job.status == s.RUNNING:
            return self._while_running(job_id, job)
        if job.status in s.TERMINAL:
            return [Event(e.SubmissionDuplicated("d", "d", True, 5), status="skipped")]
        return [Event(e.AttemptStarted(job.lost)), cancelled]

    def _while_running(self, job_id: str, job: s.JobState) -> list[Event]:
        ends: list[Body] = [
            e.AttemptFailed("transient", "no", None, 1),
            e.AttemptLost("gone", "w", job.lost + 1),
            e.AttemptHandedBack("stop"),
            e.RetryScheduled("transient", 5, START + self._draw(st.integers(0, 9))),
            e.JobSucceeded(b"1", None, 5),
            e.MovedToInvestigation("unknown", "no"),
            e.CompensationStarted("unknown", "no", None, ("call k1",)),
            e.CompensationEnded((), ("call k1",), "no"),
        ]
        head = self.states.head(job_id)
        if head is not None and head.resource is not None:
            ends.append(e.KeyBlocked("it failed"))
        ends.append(e.UniqueTaken(self._draw(st.sampled_from(KEYS)), self._draw(st.none() | st.just(START))))
        return [*map(Event, ends), *self._effects(), self._lease(), self._change(), self._change()]

    def _effects(self) -> list[Event]:
        key = self._draw(st.sampled_from(KEYS))
        started = Event(e.EffectStarted(key, f"sha256:{key}", None, None, False), step=f"call {key}")
        if self.states.idempotency(key) is None:
            return [started]
        outcomes: list[Body] = [
            e.EffectSucceeded(key, b"7", None, 1, "call"),
            e.EffectFailed(key, "transient", "no", None, 1),
            e.EffectInDoubt(key, "time-out"),
            e.EffectResolved(key, "succeeded", b"8", None, "seen", "ann", "c"),
        ]
        return [started, *(Event(outcome, step=f"call {key}") for outcome in outcomes)]

    def _lease(self) -> Event:
        resource = self._draw(st.sampled_from(RESOURCES))
        held = self.states.lease(resource)
        if held is None or held.released or self._draw(st.booleans()):
            token = (held.token if held is not None else 0) + 1
            return Event(e.LeaseAcquired(5000, 0), resource=resource, fencing_token=token)
        ended: Body = e.LeaseReleased(7) if self._draw(st.booleans()) else e.LeaseExpired(held.holder)
        return Event(ended, resource=resource, fencing_token=held.token)

    def _change(self) -> Event:
        key = self._draw(st.sampled_from(RESOURCES))
        version = self.states.aggregate(key).version
        fields = self._draw(st.dictionaries(st.sampled_from(FIELDS), _values, max_size=3))
        deleted = tuple(sorted(set(self._draw(st.lists(st.sampled_from(FIELDS), max_size=1))) - set(fields)))
        changed = e.StateChanged(version, values.encode(fields), deleted)
        return Event(changed, step="save", resource=key, resource_version=version + 1)


@st.composite
def histories(draw: st.DrawFn, steps: int = 60) -> list[EventRecord]:
    """Records in order of their numbers."""
    writer = Writer(draw)
    for _ in range(draw(st.integers(1, steps))):
        writer.step()
    return writer.records
