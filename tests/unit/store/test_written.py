"""An aggregate's versions since a job came: from the store, from the turns that are not stored yet, from both."""

from __future__ import annotations

import pytest

from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.fold import apply_record
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.working import WorkingSet, trace_put
from rewindq.engine.store.written import written_since

KEY = "order:1"
WRITERS = ["a", "b", "bad", "c", "bad", "d"] * 4


class Partition:
    """Writes of an aggregate, one a turn; the turns are stored up to where a test wants it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.states = WorkingSet(self.store)
        self.turns: list[tuple[int, list[object], object]] = []

    def write(self, job_id: str, value: int) -> None:
        seq = len(self.turns)
        body = e.StateChanged(seq, values.encode({job_id: value}))
        event = e.Event(body, resource=KEY, resource_version=seq + 1)
        apply_record(self.states, e.EventRecord(seq, seq, 0, 1, "w", job_id, 1, (event,)))
        number, changes = self.states.collect()
        self.turns.append((number, list(changes), trace_put(job_id, seq, True, seq)))

    def stored(self, count: int, *, told: bool = True) -> None:
        for number, changes, trace in self.turns[:count]:
            self.store.write([*changes, trace])  # type: ignore[list-item]
            if told:
                self.states.stored(number)


@pytest.mark.parametrize("told", [True, False], ids=["told", "in between"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 20, len(WRITERS)])
def test_nothing_is_missed_however_far_the_store_is(count: int, told: bool) -> None:
    partition = Partition()
    for number, job_id in enumerate(WRITERS):
        partition.write(job_id, number)
    partition.stored(count, told=told)

    found = written_since(partition.store, partition.states.fresh, "bad", KEY)

    assert [version.version for _, version in found.versions][-22:] == list(range(3, len(WRITERS) + 1))
    seen = dict(found.before)
    for _, version in found.versions:
        seen.update(values.decode(version.changes))
    assert seen == partition.states.aggregate(KEY).data
    if count > 2:
        assert found.before == {"a": 0, "b": 1}, "as of before the job came"


def test_a_job_that_never_came_has_written_nothing() -> None:
    partition = Partition()
    assert written_since(partition.store, partition.states.fresh, "bad", KEY) == ({}, [])
    partition.write("a", 1)
    partition.stored(1)
    found = written_since(partition.store, None, "bad", KEY)
    assert [version.job_id for _, version in found.versions] == ["a"]


def test_what_is_stored_is_not_kept_in_memory() -> None:
    partition = Partition()
    for number in range(3):
        partition.write("a", number)
    assert len(partition.states.fresh.of(KEY)) == 3
    assert partition.states.fresh.of("order:2") == []
    partition.stored(2)
    assert [seq for seq, _ in partition.states.fresh.of(KEY)] == [2]
