"""Any version of an aggregate is what a dict would be, read from a bounded number of stored records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.aggregate import (
    DELETE,
    SNAPSHOT_EVERY,
    aggregate_key,
    apply_changes,
    evolve_aggregate,
    rebuild,
    split_changes,
)
from rewindq.engine.core.events import StateChanged
from rewindq.engine.core.evolve import FoldError, Moment
from rewindq.engine.ports.store import Family, Put
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.newest import read_aggregate
from rewindq.engine.store.working import WorkingSet

names = st.sampled_from(["a", "b", "c", "$decimal", ""])
changes = st.dictionaries(names, st.integers() | st.just(DELETE) | st.sampled_from(["x", None]), max_size=4)


def moment(seq: int) -> Moment:
    return Moment(seq, 1, "w", f"job-{seq}", 1, "save", seq)


def grow(aggregate: s.Aggregate, change: dict[str, Any], seq: int) -> tuple[s.Aggregate, s.AggregateVersion]:
    fields, deleted = split_changes(change)
    version = aggregate.version + 1
    return evolve_aggregate(
        aggregate, StateChanged(aggregate.version, values.encode(fields), deleted), version, moment(seq)
    )


@settings(max_examples=60)
@given(history=st.lists(changes, min_size=1, max_size=3 * SNAPSHOT_EVERY))
def test_every_version_is_what_a_dict_would_be(history: list[dict[str, Any]]) -> None:
    store, model, aggregate = MemoryStore(), {}, s.NO_AGGREGATE
    expected: dict[int, dict[str, Any]] = {}
    for at, change in enumerate(history):
        seq = 10 + 3 * at
        for name, value in change.items():
            if value is DELETE:
                model.pop(name, None)
            else:
                model[name] = value
        aggregate, stored = grow(aggregate, change, seq)
        store.write([Put(Family.AGGREGATES, b"order:1", s.encode_state(stored), seq)])
        expected[seq] = dict(model)
        assert aggregate.data == model
    for at, (seq, data) in enumerate(expected.items()):
        for position in (seq, seq + 1, seq + 2):
            read = read_aggregate(store, "order:1", position)
            assert (read.data, read.version, read.seq, read.writer) == (data, at + 1, seq, f"job-{seq}")
    assert read_aggregate(store, "order:1") == aggregate
    assert WorkingSet(store).aggregate("order:1") == aggregate
    assert read_aggregate(store, "order:1", 9) == s.NO_AGGREGATE


def test_a_version_is_read_from_at_most_so_many_records() -> None:
    aggregate = s.NO_AGGREGATE
    stored: list[tuple[int, s.AggregateVersion]] = []
    for seq in range(5 * SNAPSHOT_EVERY):
        aggregate, version = grow(aggregate, {"n": seq}, seq)
        stored.append((seq, version))
        needed = [(at, one) for at, one in stored if at >= aggregate.snapshot_seq]

        assert len(needed) <= SNAPSHOT_EVERY
        assert rebuild(needed) == aggregate
        # A first version's changes are all there is; a later snapshot stands beside its delta.
        assert (needed[0][1].snapshot is not None) == (needed[0][1].version > 1)
        assert [one.snapshot for _, one in needed[1:]] == [None] * (len(needed) - 1)


def test_snapshots_stand_at_every_sixteenth_version() -> None:
    aggregate, with_snapshot = s.NO_AGGREGATE, []
    for seq in range(40):
        aggregate, version = grow(aggregate, {f"f{seq}": seq}, seq)
        if version.snapshot is not None:
            with_snapshot.append(version.version)
            assert values.decode(version.snapshot) == aggregate.data

    assert with_snapshot == [17, 33]


def test_a_version_names_its_parent() -> None:
    first, stored_first = grow(s.NO_AGGREGATE, {"a": 1}, 5)
    _, stored = grow(first, {"b": 2}, 9)

    assert (stored_first.parent_seq, stored_first.version) == (None, 1)
    assert (stored.parent_seq, stored.version, stored.job_id, stored.token) == (5, 2, "job-9", 9)


@pytest.mark.parametrize(("parent", "version"), [(0, 1), (2, 3), (1, 3), (1, 1)])
def test_a_change_on_another_version_is_refused(parent: int, version: int) -> None:
    current, _ = grow(s.NO_AGGREGATE, {"a": 1}, 5)
    with pytest.raises(FoldError, match=f"version {version} on {parent} at seq 6 cannot follow version 1"):
        evolve_aggregate(current, StateChanged(parent, b"{}"), version, moment(6))


def test_the_version_before_is_left_as_it_was() -> None:
    first, _ = grow(s.NO_AGGREGATE, {"a": 1, "b": 2}, 5)
    grow(first, {"a": DELETE, "b": 3}, 6)

    assert first.data == {"a": 1, "b": 2}
    assert s.NO_AGGREGATE.data == {}


def test_a_field_that_is_not_there_can_be_removed() -> None:
    assert apply_changes({"a": 1}, b'{"b":2}', ["c"]) == {"a": 1, "b": 2}


def test_nothing_stored_is_no_aggregate() -> None:
    assert rebuild([]) == s.NO_AGGREGATE


def test_keys_have_one_reading() -> None:
    assert aggregate_key("order", "7:1") == "order:7:1"


@pytest.mark.parametrize(("kind", "identity"), [("", "1"), ("a:b", "1"), ("a\0", "1"), ("a", ""), ("a", "1\0")])
def test_keys_with_two_readings_are_refused(kind: str, identity: str) -> None:
    with pytest.raises(ValueError, match="must be a non-empty"):
        aggregate_key(kind, identity)
