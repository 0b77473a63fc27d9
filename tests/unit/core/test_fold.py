"""The same events make the same store, byte for byte, however they are cut into turns."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.histories import START, histories

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.events import Event, EventRecord
from rewindq.engine.core.evolve import FoldError
from rewindq.engine.core.fold import apply_record
from rewindq.engine.ports.store import Delete, Family, Put
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.newest import read_counts, read_quarantines, read_queued
from rewindq.engine.store.working import WorkingSet


def folded(
    records: list[EventRecord], turns: list[int], *, cache_max: int = 50_000, reopen: bool = False
) -> MemoryStore:
    """A store made of these records, written in turns of these many records (the last is repeated)."""
    store = MemoryStore()
    states = WorkingSet(store, cache_max=cache_max)
    rest = list(records)
    for turn in count():
        if not rest:
            return store
        size = turns[min(turn, len(turns) - 1)]
        for record in rest[:size]:
            apply_record(states, record)
        rest = rest[size:]
        number, changes = states.collect()
        store.write(changes)
        states.stored(number)
        if reopen:
            states = WorkingSet(store, cache_max=cache_max)
    return store


@settings(max_examples=60)
@given(records=histories(), turns=st.lists(st.integers(1, 9), min_size=1))
def test_turns_do_not_matter(records: list[EventRecord], turns: list[int]) -> None:
    whole = folded(records, [len(records)]).digest()

    assert folded(records, turns).digest() == whole
    assert folded(records, turns, cache_max=0).digest() == whole
    assert folded(records, turns, reopen=True).digest() == whole


@settings(max_examples=40)
@given(records=histories(), turns=st.lists(st.integers(1, 9), min_size=1), cache_max=st.sampled_from([0, 50_000]))
def test_decisions_that_are_not_stored_yet_are_not_forgotten(
    records: list[EventRecord], turns: list[int], cache_max: int
) -> None:
    """A worker decides its next turn while the last one is on its way to the log."""
    store = MemoryStore()
    states = WorkingSet(store, cache_max=cache_max, payloads_max=0)
    under_way: list[tuple[int, list[Put | Delete]]] = []
    rest = list(records)
    for turn in count():
        size = turns[min(turn, len(turns) - 1)]
        for each in rest[:size]:
            apply_record(states, each)
        for number, changes in under_way:
            store.write(changes)
            states.stored(number)
        if not rest:
            break
        under_way = [states.collect()]
        rest = rest[size:]

    assert store.digest() == folded(records, [len(records)]).digest()


@settings(max_examples=40)
@given(records=histories())
def test_what_went_through_the_log_folds_to_the_same(records: list[EventRecord]) -> None:
    codec = Codec()
    read = [codec.decode(codec.encode(record)) for record in records]

    assert folded(read, [3]).digest() == folded(records, [len(records)]).digest()


@settings(max_examples=40)
@given(records=histories())
def test_neighbours_of_one_record_fold_as_records_of_their_own(records: list[EventRecord]) -> None:
    """An owner puts a decision's events into one record."""
    joined: list[EventRecord] = []
    for record in records:
        last = joined[-1] if joined else None
        same = last is not None and all(
            getattr(last, name) == getattr(record, name) for name in ("job_id", "attempt", "resource")
        )
        if last is not None and same:
            joined[-1] = e.EventRecord(
                last.seq,
                last.lamport,
                last.timestamp,
                1,
                last.worker_id,
                last.job_id,
                last.attempt,
                (*last.events, *record.events),
                last.resource,
            )
        else:
            joined.append(record)
    single = [
        EventRecord(j.seq + at, 0, j.timestamp, 1, j.worker_id, j.job_id, j.attempt, (event,), j.resource)
        for j in joined
        for at, event in enumerate(j.events)
    ]

    assert folded(joined, [2]).digest() == folded(single, [5]).digest()


@settings(max_examples=40)
@given(records=histories())
def test_the_indexes_say_what_the_jobs_say(records: list[EventRecord]) -> None:
    store = folded(records, [4])
    jobs = {key.decode(): s.decode_job(store.latest(Family.JOBS, key).value) for key in store.keys(Family.JOBS)}  # type: ignore[union-attr]
    heads = {key.decode(): s.decode_head(value) for key, value in store.scan(Family.PAYLOADS)}

    assert heads.keys() == jobs.keys()
    waiting = {
        s.ready_key(heads[j].priority, heads[j].accepted_seq): j.encode() for j in jobs if jobs[j].status == s.WAITING
    }
    assert dict(store.scan(Family.READY)) == waiting
    timed = {j for j, job in jobs.items() if job.status in (s.DELAYED, s.RETRYING)}
    assert {key for key, _ in store.scan(Family.TIMERS)} == {s.timer_key(jobs[j].due or 0, j) for j in timed}
    counts = {status: n for status, n in read_counts(store).items() if n}
    assert counts == {
        status: sum(job.status == status for job in jobs.values()) for status in {job.status for job in jobs.values()}
    }
    queued = Counter(heads[j].type for j, job in jobs.items() if job.status in s.QUEUED)
    assert read_queued(store) == queued
    running = {key.decode() for key, value in store.scan(Family.RUNNING) if s.decode_open(value).running}
    assert running == {j for j, job in jobs.items() if job.status == s.RUNNING}


def record(*events: Event, seq: int = 0, resource: str | None = None, attempt: int = 0) -> EventRecord:
    return EventRecord(seq, 0, START, 1, "w", "job", attempt, events, resource)


ACCEPTED = Event(e.JobAccepted("t", "order:1", b"{}", None, "d", 0, None, START, 0))


def test_events_of_a_record_count_on_from_its_number() -> None:
    store = folded([record(ACCEPTED, Event(e.AttemptStarted(0), fencing_token=1), seq=7, resource="order:1")], [1])

    assert [version.seq for version in store.history(Family.JOBS, b"job")] == [7, 8]
    lease = store.latest(Family.LEASES, b"order:1")
    assert lease is not None
    assert (lease.seq, s.decode_lease(lease.value)) == (8, s.Lease(1, "job", 0))


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((ACCEPTED, Event(e.AttemptStarted(0))), "holds order:1 without a fencing token"),
        ((Event(e.LeaseAcquired(5, 0), resource="order:2"),), "LeaseAcquired at seq 0 has no fencing token"),
        ((ACCEPTED, ACCEPTED), "accepted a second time at seq 1"),
        ((Event(e.JobSucceeded(None, None, 1)),), "never accepted"),
        ((Event(e.SubmissionReleased("now")),), "released at seq 0 and was not held"),
        (
            (Event(e.StateChanged(1, b"{}"), resource="order:1", resource_version=2),),
            "version 2 on 1 at seq 0 cannot follow version 0",
        ),
    ],
)
def test_what_cannot_follow_is_a_fold_error_with_its_place(events: tuple[Event, ...], reason: str) -> None:
    with pytest.raises(FoldError, match=reason):
        folded([record(*events, resource="order:1")], [1])


def test_a_late_release_does_not_end_a_newer_grant() -> None:
    def lease(body: e.Body, token: int) -> Event:
        return Event(body, resource="order:2", fencing_token=token)

    store = folded(
        [
            record(lease(e.LeaseAcquired(5, 0), 1)),
            record(lease(e.LeaseAcquired(5, 0), 2), seq=1),
            record(lease(e.LeaseReleased(1), 1), seq=2),
        ],
        [1],
    )
    newest = store.latest(Family.LEASES, b"order:2")
    assert newest is not None
    assert s.decode_lease(newest.value) == s.Lease(2, "job", 0, 5)


def test_events_that_only_report_change_nothing() -> None:
    reports: list[e.Body] = [
        e.NoteRecorded(b"{}"),
        e.DecisionRecorded(b"true"),
        e.CacheRead("fx", "k", True, "1", 5, b"1"),
        e.WriteConflict(1, 2, None),
        e.LeaseRequested(5, "other"),
        e.SubmissionForwarded(1, "k", 5),
    ]
    empty = folded([], [1])

    assert folded([record(*map(Event, reports))], [1]).digest() == empty.digest()


def test_a_quarantine_is_part_of_the_state_as_of_any_position() -> None:
    def about(body: e.Body, seq: int) -> EventRecord:
        return EventRecord(seq, 0, START + seq, 1, "w", None, 0, (Event(body),))

    records = [
        about(e.QuarantineAdded("t", "broken", "ann", "c1"), 0),
        about(e.QuarantineAdded("u", "broken", "ann", "c2"), 1),
        about(e.QuarantineLifted("t", "mended", "bob", "c3"), 2),
    ]
    store = folded(records, [1])
    assert {name: one.active for name, one in read_quarantines(store).items()} == {"t": False, "u": True}
    assert {name: one.active for name, one in read_quarantines(store.view(1)).items()} == {"t": True, "u": True}
    assert set(WorkingSet(store).quarantined) == {"u"}
