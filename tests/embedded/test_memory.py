"""What only the memory log has: faults, a given clock, expelling, ids that repeat."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.logs import join, read_all, record, settle, turn

from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.ports.log import Append, AppendRefused, Fenced, LogError, OutcomeUnknown, TopicSpec


class Once:
    """Raises an error at the next commit, before or after it."""

    def __init__(self) -> None:
        self.before: LogError | None = None
        self.after: LogError | None = None
        self.seen: list[tuple[str, int]] = []

    def before_commit(self, who: str, appends: Sequence[Append]) -> None:
        self.seen.append((who, len(appends)))
        error, self.before = self.before, None
        if error:
            raise error

    def after_commit(self, who: str, appends: Sequence[Append]) -> None:
        error, self.after = self.after, None
        if error:
            raise error


def _log(state: MemoryState) -> MemoryLog:
    log = MemoryLog(state)
    log.create_topics([TopicSpec("jobs", 2), TopicSpec("events", 1)])
    return log


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), AppendRefused("no"), Fenced("gone")])
def test_a_fault_before_leaves_nothing_behind(error: LogError) -> None:
    faults = Once()
    log = _log(MemoryState(faults=faults))
    worker = join(log, "g", ["jobs"])
    worker.poll(0)
    faults.before = error
    with pytest.raises(type(error)):
        worker.member.commit(turn([record("events")], {("jobs", 0): 1}, 0))
    assert read_all(log, "events") == [] and log.groups()[0].offsets == {}
    assert worker.member.commit(turn([record("events")], {("jobs", 0): 1}, 0)) == [0]
    assert faults.seen == [(worker.member.member_id, 1)] * 2


def test_a_fault_after_leaves_the_commit_in_place() -> None:
    faults = Once()
    log = _log(MemoryState(faults=faults))
    worker = join(log, "g", ["jobs"])
    worker.poll(0)
    faults.after = OutcomeUnknown("?")
    with pytest.raises(OutcomeUnknown):
        worker.member.commit(turn([record("events")], {("jobs", 0): 1}, 0))
    assert len(read_all(log, "events")) == 1 and log.groups()[0].offsets == {("jobs", 0): 1}
    faults.after = OutcomeUnknown("?")
    with pytest.raises(OutcomeUnknown):
        log.producer().append([record("events")])
    assert len(read_all(log, "events")) == 2


def test_an_expelled_member_is_fenced_then_told_and_may_come_back() -> None:
    state = MemoryState()
    log = _log(state)
    one, two = join(log, "g", ["jobs"]), join(log, "g", ["jobs"])
    settle([one, two], lambda: len(one.owner.owned) == len(two.owner.owned) == 1)
    (mine,) = one.owner.owned
    state.expel(one.member.member_id)
    two.poll(0)
    assert two.owner.owned == {0, 1}
    with pytest.raises(Fenced, match=one.member.member_id):
        one.member.commit(turn([record("events")], {}, mine))
    one.poll(0)
    assert one.owner.told[-1] == ("lost", [mine])
    settle([one, two], lambda: len(one.owner.owned) == len(two.owner.owned) == 1)


def test_a_commit_begun_before_the_loss_is_fenced_even_after_coming_back() -> None:
    """The generation is taken when the commit begins, so an old turn cannot slip in under a new lease."""
    faults = Once()
    state = MemoryState(faults=faults)
    log = _log(state)
    one = join(log, "g", ["jobs"])
    one.poll(0)

    def lose_and_regain(who: str, appends: Sequence[Append]) -> None:
        state.expel(one.member.member_id)
        one.poll(0)
        assert one.owner.owned == {0, 1}

    faults.before_commit = lose_and_regain  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        one.member.commit(turn([record("events")], {}, 0))
    assert read_all(log, "events") == []


def test_with_a_clock_a_member_that_does_not_poll_loses_its_partitions() -> None:
    now = [0.0]
    log = _log(MemoryState(clock=lambda: now[0], lease_ttl=10.0))
    one, two = join(log, "g", ["jobs"]), join(log, "g", ["jobs"])
    settle([one, two], lambda: len(one.owner.owned) == len(two.owner.owned) == 1)
    for now[0] in (9.0, 18.0):
        two.poll(0)
    assert two.owner.owned == {0, 1}
    assert len(log.groups()[0].members) == 1
    one.poll(0)
    assert one.owner.told[-1][0] == "lost"


def test_the_same_calls_give_the_same_ids() -> None:
    ids = []
    for _ in range(2):
        log = _log(MemoryState(identity="world"))
        ids.append([log.identity()] + [join(log, "g", ["jobs"], name).member.member_id for name in "ab"])
    assert ids[0] == ids[1] and len(set(ids[0])) == 3


def test_markers_make_gaps() -> None:
    log = _log(MemoryState(markers=True))
    producer = log.producer()
    assert [producer.append([record("events")]) for _ in range(3)] == [[0], [2], [4]]
    assert log.bounds("events", 0) == (0, 6)
    reader = log.reader({("events", 0): 1})
    assert [one.offset for one in reader.poll()] == [2, 4]
    assert reader.position("events", 0) == 6
