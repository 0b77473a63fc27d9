"""What the store holds: its order of keys, and records that older stores can still be read as."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import structs

from rewindq.engine.core import state as s

#: The stored fields of STATE_FORMAT 1, in order. New ones go to the end; any other change needs a new STATE_FORMAT.
FIELDS: dict[type[s.Stored], str] = {
    s.JobHead: "type key resource priority submitted_at accepted_seq digest payload payload_ref trace_id "
    "correlation_id parent secrets source_offset",
    s.Failure: "failure_class reason step",
    s.JobState: "status attempt last_seq due worker started_at finished_at failure failures lost token cancel_reason "
    "result result_ref",
    s.Holds: "",
    s.KeyBlock: "jobs",
    s.Held: "type digest original source_offset held_seq",
    s.TypeNote: "reason",
    s.UniqueMark: "job_id",
    s.OpenEffects: "running effects",
    s.Lease: "token holder attempt ttl released",
    s.Idempotency: "status request_digest job_id attempt step answer answer_ref reason",
    s.Reverted: "reason actor command_id attempt",
    s.Reverts: "commands",
    s.AggregateVersion: "version parent_seq snapshot_seq job_id step token changes deleted snapshot",
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_stored_fields_are_only_added_at_the_end_with_a_default(kind: type[s.Stored]) -> None:
    fields = msgspec.structs.fields(kind)
    known = FIELDS[kind].split()

    assert s.STATE_FORMAT == 1
    assert [field.name for field in fields[: len(known)]] == known
    assert all(not field.required for field in fields[len(known) :])
    assert kind.__struct_config__.array_like
    assert kind.__struct_config__.frozen


@given(
    head=structs(s.JobHead),
    lease=structs(s.Lease),
    known=structs(s.Idempotency),
    version=structs(s.AggregateVersion, reverted=st.none() | structs(s.Reverted)),
)
def test_records_come_back_equal(
    head: s.JobHead, lease: s.Lease, known: s.Idempotency, version: s.AggregateVersion
) -> None:
    assert s.decode_head(s.encode_state(head)) == head
    assert s.decode_lease(s.encode_state(lease)) == lease
    assert s.decode_idempotency(s.encode_state(known)) == known
    assert s.decode_version(s.encode_state(version)) == version


def test_a_record_of_an_older_version_takes_the_defaults() -> None:
    assert s.decode_job(msgspec.msgpack.encode(["waiting", 2])) == s.JobState("waiting", 2)


positions = st.integers(0, 2**63)


@given(jobs=st.lists(st.tuples(st.integers(-1000, 1000), positions), max_size=20))
def test_ready_jobs_stand_by_priority_then_age(jobs: list[tuple[int, int]]) -> None:
    by_key = sorted(jobs, key=lambda job: s.ready_key(*job))

    assert by_key == sorted(jobs, key=lambda job: (-job[0], job[1]))


@given(jobs=st.lists(st.tuples(positions, st.text(max_size=5)), max_size=20))
def test_timers_stand_by_due_time(jobs: list[tuple[int, str]]) -> None:
    by_key = sorted(jobs, key=lambda job: s.timer_key(*job))

    assert [due for due, _ in by_key] == sorted(due for due, _ in jobs)


@given(one=st.text("ab", min_size=1), other=st.text("ab", min_size=1), seq=positions)
def test_a_jobs_trace_holds_no_other_jobs_records(one: str, other: str, seq: int) -> None:
    prefix = s.trace_key(one, 0)[:-8]

    assert s.trace_key(other, seq).startswith(prefix) == (one == other)
