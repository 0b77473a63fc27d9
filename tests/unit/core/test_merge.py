"""One order out of two topics, whatever order they are polled in and whoever else appended to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.writers import TOPICS, D, L, Part, Partition, Polling, Writer, fence, numbered

from rewindq.engine.core.events import Event, EventRecord, NoteRecorded
from rewindq.engine.core.merge import Fence, GapInLog, Merge


def partition(lifecycle: list[EventRecord], domain: list[EventRecord]) -> Partition:
    made = Partition()
    made.topics = {L: lifecycle, D: domain}
    return made


def every_polling_order(of: Partition) -> Iterator[list[str]]:
    """All orders in which the two topics' records can arrive."""
    left, right = len(of.topics[L]), len(of.topics[D])
    for places in combinations(range(left + right), left):
        yield [L if at in places else D for at in range(left + right)]


#: By what happened: lifecycle topic, domain topic, numbers that are applied, why the others are not.
CASES: dict[str, tuple[list[EventRecord], list[EventRecord], list[int], list[str]]] = {
    "one writer": (
        [fence(1), numbered(0, 1), numbered(3, 1, 2)],
        [fence(1), numbered(1, 1, 2), numbered(5, 1)],
        [0, 1, 3, 5],
        [],
    ),
    "a take-over": (
        [fence(1), numbered(0, 1), fence(2), numbered(2, 2)],
        [fence(1), numbered(1, 1), fence(2), numbered(3, 2)],
        [0, 1, 2, 3],
        [],
    ),
    "the old writer goes on behind the fence": (
        [fence(1), numbered(0, 1), fence(2), numbered(1, 1), numbered(1, 2)],
        [fence(1), fence(2), numbered(2, 2), numbered(2, 1)],
        [0, 1, 2],
        ["ended with w2's 2", "ended with w2's 2"],
    ),
    "a worker that lost the partition and has it again": (
        [fence(1, "w"), numbered(0, 1, worker="w"), fence(2, "w"), numbered(1, 1, worker="w")],
        [fence(1, "w"), fence(2, "w"), numbered(1, 2, worker="w")],
        [0, 1],
        ["ended with w's 2"],
    ),
    "the old writer between the two fences": (
        [fence(1), numbered(0, 1), fence(2)],
        [fence(1), numbered(1, 1), fence(2), numbered(2, 2)],
        [0, 1, 2],
        [],
    ),
    "half of a transaction fenced off, its number used again": (
        [fence(1), numbered(0, 1), fence(2), numbered(1, 1), numbered(1, 2)],
        [fence(1), numbered(2, 1), fence(2), numbered(2, 2)],
        [0, 1, 2],
        ["ended with w2's 2", "torn"],
    ),
    "a torn transaction, and two take-overs before anybody writes": (
        [fence(1), fence(2), fence(3), numbered(1, 3)],
        [fence(1), numbered(1, 1), fence(2), fence(3), numbered(0, 3)],
        [0, 1],
        ["torn"],
    ),
    "a torn transaction whose number comes up": (
        [fence(1), numbered(0, 1), fence(2), numbered(1, 2)],
        [fence(1), numbered(2, 1), fence(2)],
        [0, 1],
        ["torn"],
    ),
    "two take the same epoch": (
        [fence(1), fence(2, "ann"), fence(2, "bob"), numbered(0, 2, worker="bob"), numbered(0, 2, worker="ann")],
        [fence(1), fence(2, "ann"), fence(2, "bob")],
        [0],
        ["taken by ann", "ended with ann's 2", "taken by ann"],
    ),
    "an older fence comes late": (
        [fence(1), fence(3), fence(2), numbered(0, 2), numbered(0, 3)],
        [fence(1), fence(3), fence(2), numbered(1, 3)],
        [0, 1],
        ["taken by w3", "ended with w3's 3", "taken by w3"],
    ),
    "a record appended twice": (
        [fence(1), numbered(0, 1), numbered(0, 1), numbered(1, 1)],
        [fence(1)],
        [0, 1],
        ["event 0 was appended before"],
    ),
    "an unnumbered record that is no fence": (
        [fence(1), EventRecord(-1, 0, 0, 1, "w1", None, 0, ()), numbered(0, 1)],
        [fence(1), EventRecord(-1, 0, 0, 1, "w1", None, 0, (Event(NoteRecorded(b"1")),))],
        [0],
        ["event -1", "event -1"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_polling_order_gives_the_same_events(case: str) -> None:
    lifecycle, domain, applied, reasons = CASES[case]
    for order in every_polling_order(partition(lifecycle, domain)):
        eager, late = Polling(partition(lifecycle, domain)), Polling(partition(lifecycle, domain))
        for topic in order:
            eager.poll(topic)
            eager.take()
            late.poll(topic)
        for polling in (eager, late):
            assert [record.seq for record in polling.finish()] == applied, order
            stale = [item for item in polling.merged if item.stale is not None]
            assert len(polling.merged) == len(lifecycle) + len(domain), order
            assert len(stale) == len(reasons), order
            for reason in reasons:
                assert any(reason in (item.stale or "") for item in stale), (order, reason)


@pytest.mark.parametrize("case", CASES)
def test_the_cases_agree_with_the_rule(case: str) -> None:
    """The hand-written expectations and the oracle of the random histories are of one mind."""
    lifecycle, domain, applied, _ = CASES[case]

    assert [record.seq for record in partition(lifecycle, domain).expected()] == applied


parts = st.lists(st.builds(Part, st.sampled_from(TOPICS), st.integers(1, 3)), min_size=1, max_size=4)
steps = st.one_of(
    st.tuples(st.just("write"), parts),
    st.tuples(st.just("zombie"), parts, st.integers(0, 5)),
    st.tuples(st.just("take over"), st.booleans(), st.none() | parts),
    st.tuples(st.just("torn"), parts, st.sampled_from(TOPICS)),
    st.tuples(st.just("late fence"), st.booleans(), st.integers(0, 2)),
)


@st.composite
def histories(draw: st.DrawFn) -> Partition:
    """What happened to a partition; a last take-over settles it."""
    log = Partition()
    writers: list[Writer] = []
    for step in [("take over", True, None), *draw(st.lists(steps, max_size=12)), ("take over", True, None)]:
        _happen(log, writers, step)
    return log


def _happen(log: Partition, writers: list[Writer], step: tuple[object, ...]) -> None:
    match step:
        case ("write", parts):
            _append(log, writers[-1].transaction(parts))  # type: ignore[arg-type]
        case ("zombie", parts, int(which)):
            _append(log, writers[which % len(writers)].transaction(parts))  # type: ignore[arg-type]
        case ("torn", parts, topic):
            landed = [made for made in writers[-1].transaction(parts) if made[0] == topic]  # type: ignore[arg-type]
            _append(log, landed)
            _take_over(log, writers, lifecycle_first=True, between=None)
        case ("late fence", bool(lifecycle_first), int(older)):
            epoch = max(1, writers[-1].epoch - older)
            for topic in TOPICS if lifecycle_first else TOPICS[::-1]:
                log.append(topic, fence(epoch, "late"))
            _append(log, Writer(epoch, "late", writers[-1].seq).transaction([Part(L, 1), Part(D, 1)]))
        case ("take over", bool(lifecycle_first), between):
            _take_over(log, writers, lifecycle_first, between)  # type: ignore[arg-type]


def _take_over(log: Partition, writers: list[Writer], lifecycle_first: bool, between: list[Part] | None) -> None:
    epoch = len(writers) + 1
    for topic in TOPICS if lifecycle_first else TOPICS[::-1]:
        log.append(topic, fence(epoch))
        if between is not None and writers and topic == (L if lifecycle_first else D):
            _append(log, writers[-1].transaction(between))
    applied = log.expected()
    writers.append(Writer(epoch, f"w{epoch}", applied[-1].next_seq if applied else 0))


def _append(log: Partition, made: list[tuple[str, EventRecord]]) -> None:
    for topic, record in made:
        log.append(topic, record)


@settings(max_examples=300)
@given(log=histories(), data=st.data())
def test_any_history_is_read_alike_in_any_order(log: Partition, data: st.DataObject) -> None:
    polling = Polling(log)
    for action in data.draw(st.lists(st.sampled_from([L, D, "take", "restart"]), max_size=60)):
        if action == "restart":
            polling.restart()
        elif action == "take":
            polling.take()
        else:
            polling.poll(action)

    assert polling.finish() == log.expected()


@given(log=histories())
def test_every_record_is_shown_once_and_numbers_have_no_gap(log: Partition) -> None:
    polling = Polling(log)
    applied = polling.finish()
    seq = 0
    for record in applied:
        assert record.seq == seq
        seq = record.next_seq

    assert sorted((item.topic, item.offset) for item in polling.merged) == sorted(
        (topic, offset) for topic in TOPICS for offset, _ in log.records(topic)
    )
    assert polling.merge.expected == seq


@given(log=histories(), data=st.data())
def test_nothing_is_read_over_a_lost_record(log: Partition, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(log.expected() or [None]))
    for topic in TOPICS:
        log.topics[topic] = [record for record in log.topics[topic] if record is not lost]
    polling = Polling(log)
    try:
        assert polling.finish() == log.expected()
    except GapInLog:
        assert polling.merge.expected == (log.expected()[-1].next_seq if log.expected() else 0)


@given(work=st.lists(parts, min_size=1, max_size=6), taken_over=st.booleans(), data=st.data())
def test_a_lost_record_is_a_gap_by_name(work: list[list[Part]], taken_over: bool, data: st.DataObject) -> None:
    """Of the newest writer, and of one whose successor wrote, too."""
    log = partition([fence(1)], [fence(1)])
    writer = Writer(1, "w1", 0)
    for each in work:
        _append(log, writer.transaction(each))
    written = log.expected()
    if taken_over:
        for topic in TOPICS:
            log.append(topic, fence(2))
        _append(log, Writer(2, "w2", writer.seq).transaction([Part(L, 1)]))
    lost = data.draw(st.sampled_from(written[:-1] if len(written) > 1 and not taken_over else written))
    for topic in TOPICS:
        log.topics[topic] = [record for record in log.topics[topic] if record is not lost]
    if len(written) == 1 and not taken_over:
        return  # nothing stands behind it

    with pytest.raises(GapInLog, match=rf"event {lost.seq} is missing"):
        Polling(log).finish()


def test_a_gap_names_the_topic_the_offset_and_both_numbers() -> None:
    log = partition([fence(1), numbered(0, 1)], [fence(1), numbered(2, 1)])
    with pytest.raises(GapInLog, match="domain offset 2 begins with event 2, but event 1 is missing"):
        Polling(log).finish()


def test_reading_stops_in_front_of_a_waiting_record() -> None:
    merge = Merge(TOPICS)
    merge.push(D, 10, fence(1))
    merge.push(D, 11, numbered(1, 1))
    merge.push(D, 12, numbered(2, 1))
    assert [item.offset for item in merge.take()] == [10]

    assert merge.resume_at(D, 13) == 11
    assert merge.resume_at(L, 7) == 7


def test_a_reader_that_goes_on_knows_fences_it_has_not_seen_itself() -> None:
    merge = Merge(TOPICS, 4, {L: Fence(3, "w3"), D: Fence(3, "w3")}, applied_epoch=3)
    merge.push(L, 8, numbered(4, 2))
    merge.push(L, 9, numbered(4, 3))

    assert [(item.offset, item.stale is None) for item in merge.take()] == [(8, False), (9, True)]
    assert merge.epoch == 3


def test_a_torn_record_does_not_hold_a_follower_up() -> None:
    """Who follows a live partition never reaches its end."""
    log = partition(*CASES["a torn transaction, and two take-overs before anybody writes"][:2])
    polling = Polling(log)
    for topic in (D, D, D, D, D, L, L, L, L):
        polling.poll(topic)
        polling.take()

    assert polling.merge.expected == 2
