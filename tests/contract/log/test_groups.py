"""Consumer groups: assignment, turns, fencing, offsets."""

from __future__ import annotations

import threading

import pytest
from tests.support.logs import LogKit, Worker, join, read_all, record, settle, turn

from rewindq.engine.ports.log import (
    AppendRefused,
    Fenced,
    GroupActive,
    Log,
    LogError,
    NoSuchTopic,
    OffsetOutOfRange,
    OffsetsMoved,
)


def _offsets(log: Log, group: str) -> dict[tuple[str, int], int]:
    return next((state.offsets for state in log.groups(group) if state.name == group), {})


def _balanced(workers: list[Worker], partitions: int) -> bool:
    sizes = [len(worker.owner.owned) for worker in workers]
    owned = [partition for worker in workers for partition in worker.owner.owned]
    return sorted(owned) == list(range(partitions)) and max(sizes) - min(sizes) <= 1


def test_a_lone_member_owns_everything(kit: LogKit, log: Log) -> None:
    name = kit.topic("jobs", 3)
    worker = join(log, kit.name("g"), [name])
    settle([worker], lambda: worker.owner.owned == {0, 1, 2})


def test_joining_an_unknown_topic(kit: LogKit, log: Log) -> None:
    with pytest.raises(NoSuchTopic, match=kit.name("never")):
        join(log, kit.name("g"), [kit.name("never")])


def test_nothing_is_delivered_before_start_and_then_from_the_offset(kit: LogKit, log: Log) -> None:
    jobs, commands = kit.topic("jobs", 2), kit.topic("commands", 2)
    producer = log.producer()
    offsets = producer.append([record(jobs, 0, b"%d" % i) for i in range(10)])
    producer.append([record(commands, 0, b"c"), record(jobs, 1, b"other")])
    worker = join(log, kit.name("g"), [jobs, commands])
    settle([worker], lambda: worker.owner.owned == {0, 1})
    for _ in range(5):
        assert worker.poll() == []
    worker.member.start(0, {jobs: offsets[4], commands: 0})
    settle([worker], lambda: len(worker.records) >= 7)
    assert [one.value for one in worker.records if one.topic == jobs] == [b"%d" % i for i in range(4, 10)]
    assert [one.value for one in worker.records if one.topic == commands] == [b"c"]
    assert worker.poll() == []


def test_starting_again_moves_back_without_stale_records(kit: LogKit, log: Log) -> None:
    jobs = kit.topic("jobs")
    offsets = log.producer().append([record(jobs, 0, b"%d" % i) for i in range(50)])
    worker = join(log, kit.name("g"), [jobs], start=True)
    settle([worker], lambda: worker.owner.owned == {0})
    settle([worker], lambda: len(worker.records) > 0)
    worker.records.clear()
    worker.member.start(0, {jobs: offsets[45]})
    settle([worker], lambda: len(worker.records) >= 5)
    assert [one.offset for one in worker.records] == offsets[45:]


def test_pause_keeps_the_position(kit: LogKit, log: Log) -> None:
    jobs = kit.topic("jobs", 2)
    worker = join(log, kit.name("g"), [jobs], start=True)
    settle([worker], lambda: worker.owner.owned == {0, 1})
    worker.member.pause(0)
    producer = log.producer()
    producer.append([record(jobs, 0, b"a"), record(jobs, 0, b"b")])
    producer.append([record(jobs, 1, b"c")])
    settle([worker], lambda: len(worker.records) == 1)
    for _ in range(5):
        worker.poll()
    assert [one.value for one in worker.records] == [b"c"]
    worker.member.unpause(0)
    settle([worker], lambda: len(worker.records) == 3)
    assert [one.value for one in worker.records] == [b"c", b"a", b"b"]


def test_one_of_two_inputs_may_be_paused(kit: LogKit, log: Log) -> None:
    jobs, commands = kit.topic("jobs", 1), kit.topic("commands", 1)
    worker = join(log, kit.name("g"), [jobs, commands], start=True)
    settle([worker], lambda: worker.owner.owned == {0})
    worker.member.pause(0, [jobs])
    producer = log.producer()
    producer.append([record(jobs, 0, b"a")])
    producer.append([record(commands, 0, b"b")])
    settle([worker], lambda: len(worker.records) == 1)
    for _ in range(5):
        worker.poll()
    assert [one.value for one in worker.records] == [b"b"]
    worker.member.unpause(0, [jobs])
    settle([worker], lambda: len(worker.records) == 2)
    assert [one.value for one in worker.records] == [b"b", b"a"]


def test_a_turn_appends_and_commits_offsets_together(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs", 2), kit.topic("events", 2), kit.name("g")
    log.producer().append([record(jobs, 0)])
    worker = join(log, group, [jobs], start=True)
    settle([worker], lambda: worker.owner.owned == {0, 1} and len(worker.records) == 1)
    offsets = worker.member.commit(
        turn([record(events, 0, b"x"), record(events, 1, b"y"), record(events, 0, b"z")], {(jobs, 0): 1}, 0, 1)
    )
    first, second = read_all(log, events, 0), read_all(log, events, 1)
    assert [one.value for one in first + second] == [b"x", b"z", b"y"]
    assert offsets == [first[0].offset, second[0].offset, first[1].offset]
    kit.needs("group administration")
    # A log may also note where the turn's other partitions stand.
    assert _offsets(kit.log(), group).get((jobs, 0)) == 1 and _offsets(log, group).get((jobs, 1), 0) == 0


def test_a_refused_turn_leaves_nothing_behind(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs"), kit.topic("events"), kit.name("g")
    log.producer().append([record(jobs)])
    worker = join(log, group, [jobs], start=True)
    settle([worker], lambda: worker.owner.owned == {0})
    bad = [record(events, 0, b"x"), record(kit.name("never"), 0, b"y")]
    with pytest.raises(AppendRefused):
        worker.member.commit(turn(bad, {(jobs, 0): 1}, 0))
    assert read_all(log, events) == []
    kit.needs("group administration")
    assert _offsets(log, group) == {}
    worker.member.commit(turn([record(events, 0, b"fine")], {(jobs, 0): 1}, 0))
    assert [one.value for one in read_all(log, events)] == [b"fine"]


def test_a_commit_for_what_is_not_owned_is_fenced(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs", 2), kit.topic("events"), kit.name("g")
    one, two = join(log, group, [jobs]), join(kit.log(), group, [jobs])
    settle([one, two], lambda: _balanced([one, two], 2))
    foreign = next(iter(two.owner.owned))
    with pytest.raises(Fenced, match=str(foreign)):
        one.member.commit(turn([record(events)], {}, *one.owner.owned, foreign))
    assert read_all(log, events) == []
    one.member.commit(turn([record(events)], {}, *one.owner.owned))
    assert len(read_all(log, events)) == 1


def test_a_commit_before_any_assignment_is_fenced(kit: LogKit, log: Log) -> None:
    jobs, events = kit.topic("jobs"), kit.topic("events")
    worker = join(log, kit.name("g"), [jobs])
    with pytest.raises(Fenced):
        worker.member.commit(turn([record(events)], {}, 0))
    assert read_all(log, events) == []


@pytest.mark.parametrize(("partitions", "count"), [(4, 2), (5, 3), (2, 3)])
def test_members_share_and_partitions_pass_on(kit: LogKit, log: Log, partitions: int, count: int) -> None:
    jobs, group = kit.topic("jobs", partitions), kit.name("g")
    workers: list[Worker] = []
    for number in range(count):
        workers.append(join(kit.log(), group, [jobs], f"w{number}"))
        settle(workers, lambda: _balanced(workers, partitions))
    for leaving in list(workers[:-1]):
        leaving.member.close()
        workers.remove(leaving)
        settle(workers, lambda: _balanced(workers, partitions))


def test_a_partition_is_revoked_before_another_member_gets_it(kit: LogKit, log: Log) -> None:
    jobs, group = kit.topic("jobs", 4), kit.name("g")
    one = join(kit.log(), group, [jobs])
    settle([one], lambda: len(one.owner.owned) == 4)
    two = join(kit.log(), group, [jobs])
    owners = (one.owner, two.owner)

    def apart() -> bool:
        assert not one.owner.owned & two.owner.owned, [owner.told for owner in owners]
        return _balanced([one, two], 4)

    settle([one, two], apart)
    revoked = {partition for what, partitions in one.owner.told if what == "revoked" for partition in partitions}
    assert two.owner.owned <= revoked
    assert not [told for owner in owners for told in owner.told if told[0] == "lost"]


def test_the_last_commit_can_be_made_while_revoking(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs", 2), kit.topic("events"), kit.name("g")
    one = join(kit.log(), group, [jobs])
    settle([one], lambda: len(one.owner.owned) == 2)
    note = one.owner.revoked

    def revoked(partitions: list[int]) -> None:
        one.member.commit(turn([record(events, 0, b"last")], {(jobs, p): 0 for p in partitions}, *partitions))
        note(partitions)

    one.owner.revoked = revoked  # type: ignore[method-assign]
    two = join(kit.log(), group, [jobs])
    settle([one, two], lambda: _balanced([one, two], 2))
    assert [one.value for one in read_all(log, events)] == [b"last"]


def test_after_the_hand_over_the_old_owner_is_fenced_and_gets_no_records(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs", 2), kit.topic("events"), kit.name("g")
    one = join(kit.log(), group, [jobs], start=True)
    settle([one], lambda: len(one.owner.owned) == 2)
    two = join(kit.log(), group, [jobs], start=True)
    settle([one, two], lambda: _balanced([one, two], 2))
    moved = next(iter(two.owner.owned))
    with pytest.raises(Fenced):
        one.member.commit(turn([record(events)], {(jobs, moved): 1}, moved))
    assert read_all(log, events) == []
    log.producer().append([record(jobs, moved, b"x")])
    settle([one, two], lambda: any(one.value == b"x" for one in two.records))
    assert not any(one.value == b"x" for one in one.records)
    kit.needs("group administration")
    assert _offsets(log, group).get((jobs, moved), 0) == 0


def test_a_member_that_left_cannot_commit(kit: LogKit, log: Log) -> None:
    jobs, events = kit.topic("jobs"), kit.topic("events")
    worker = join(log, kit.name("g"), [jobs])
    settle([worker], lambda: worker.owner.owned == {0})
    worker.member.close()
    with pytest.raises(LogError):
        worker.member.commit(turn([record(events)], {(jobs, 0): 1}, 0))
    assert read_all(log, events) == []
    worker.member.close()


def test_commits_from_another_thread_run_beside_polls(kit: LogKit, log: Log) -> None:
    jobs, events, group = kit.topic("jobs"), kit.topic("events"), kit.name("g")
    worker = join(log, group, [jobs], start=True)
    settle([worker], lambda: worker.owner.owned == {0})
    failures: list[Exception] = []

    def commit() -> None:
        try:
            for i in range(20):
                worker.member.commit(turn([record(events, 0, b"%d" % i)], {(jobs, 0): i}, 0))
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    producer = log.producer()
    for i in range(20):
        producer.append([record(jobs, 0, b"%d" % i)])
        worker.poll()
    settle([worker], lambda: not thread.is_alive() and len(worker.records) == 20)
    thread.join()
    assert failures == []
    assert [one.value for one in read_all(log, events)] == [b"%d" % i for i in range(20)]
    kit.needs("group administration")
    assert _offsets(log, group) == {(jobs, 0): 19}


def test_member_ids_are_never_used_again_and_carry_the_name(kit: LogKit, log: Log) -> None:
    kit.needs("group administration")
    jobs, group = kit.topic("jobs"), kit.name("g")
    seen = set()
    for _ in range(2):
        worker = join(log, group, [jobs], "bob")
        settle([worker], lambda worker=worker: worker.owner.owned == {0})  # type: ignore[misc]
        (state,) = [one for one in log.groups(group) if one.name == group]
        assert len(state.members) == 1 and "bob" in state.members[0]
        seen.add(worker.member.member_id)
        worker.member.close()
    assert len(seen) == 2


def test_group_offsets_are_set_read_and_replaced(kit: LogKit, log: Log) -> None:
    kit.needs("group administration")
    jobs, group = kit.topic("jobs", 2), kit.name("g")
    log.producer().append([record(jobs, 0) for _ in range(5)])
    log.set_offsets(group, {(jobs, 0): 3, (jobs, 1): 0})
    log.set_offsets(group, {(jobs, 0): 2})
    assert _offsets(kit.log(), group) == {(jobs, 0): 2, (jobs, 1): 0}
    assert log.groups(kit.name("other")) == []


def test_offsets_of_a_running_group_are_refused_by_member(kit: LogKit, log: Log) -> None:
    kit.needs("group administration")
    jobs, group = kit.topic("jobs"), kit.name("g")
    worker = join(log, group, [jobs], "bob")
    settle([worker], lambda: worker.owner.owned == {0})
    other = kit.log()
    with pytest.raises(GroupActive, match="bob"):
        other.set_offsets(group, {(jobs, 0): 0})
    with pytest.raises(GroupActive, match="bob"):
        other.delete_group(group)
    worker.member.commit(turn([], {(jobs, 0): 0}, 0))
    worker.member.close()
    other.set_offsets(group, {(jobs, 0): 0})
    assert _offsets(log, group) == {(jobs, 0): 0}


def test_a_deleted_group_is_gone_and_an_unknown_one_is_passed_over(kit: LogKit, log: Log) -> None:
    kit.needs("group administration")
    jobs, group = kit.topic("jobs"), kit.name("g")
    log.set_offsets(group, {(jobs, 0): 0})
    log.delete_group(group)
    log.delete_group(kit.name("never"))
    assert [one for one in log.groups(group) if one.name == group] == []
    log.set_offsets(group, {(jobs, 0): 0})
    assert _offsets(log, group) == {(jobs, 0): 0}


def test_partitions_that_stay_are_read_while_others_are_handed_over(kit: LogKit, log: Log) -> None:
    name, group = kit.topic("jobs", 2), kit.name("g")
    first = join(log, group, [name], start=True)
    settle([first], lambda: first.owner.owned == {0, 1})
    producer, revoked = log.producer(), first.owner.revoked
    told: list[list[int]] = []
    everyone = [first]

    def slowly(partitions: list[int]) -> None:
        told.append(partitions)
        everyone.append(join(log, group, [name], start=True))  # the group changes once more, which has to wait
        stays = ({0, 1} - set(partitions)).pop()
        producer.append([record(name, stays, b"stays"), record(name, partitions[0], b"goes")])
        settle([first], lambda: len(first.records) > 0)
        assert first.poll(0.2) == []
        revoked(partitions)

    first.owner.revoked = slowly  # type: ignore[method-assign]
    everyone.append(join(log, group, [name], start=True))
    settle(everyone, lambda: len(everyone) == 3 and _balanced(everyone, 2))
    assert [one.value for one in first.records] == [b"stays"]
    assert len(told) == 1
    settle(everyone, lambda: {one.value for other in everyone[1:] for one in other.records} == {b"goes"})


def test_offsets_and_records_are_set_together_by_one_of_two(kit: LogKit, log: Log) -> None:
    kit.needs("group administration")
    jobs, told, group = kit.topic("jobs"), kit.topic("told"), kit.name("g")
    log.producer().append([record(jobs, 0, b"%d" % n) for n in range(5)])
    place = (jobs, 0)
    log.set_offsets(group, {place: 4}, expected={place: None}, appends=[record(told, 0, b"first")])
    with pytest.raises(OffsetsMoved, match="4 instead of None"):
        log.set_offsets(group, {place: 2}, expected={place: None}, appends=[record(told, 0, b"second")])
    with pytest.raises(AppendRefused):
        log.set_offsets(group, {place: 2}, expected={place: 4}, appends=[record(kit.name("never"), 0, b"third")])
    with pytest.raises(OffsetsMoved, match="4 instead of 3"):
        log.set_offsets(group, {place: 2}, expected={place: 3})
    assert _offsets(log, group) == {place: 4}
    assert [one.value for one in read_all(log, told)] == [b"first"]
    worker = join(log, group, [jobs])
    settle([worker], lambda: worker.owner.owned == {0})
    with pytest.raises(GroupActive):
        log.set_offsets(group, {place: 0}, appends=[record(told, 0, b"fourth")])
    worker.member.close()
    assert [one.value for one in read_all(log, told)] == [b"first"]


def test_a_stopped_partition_is_owned_and_fetches_nothing_until_it_is_started(kit: LogKit, log: Log) -> None:
    jobs = kit.topic("jobs", 2)
    worker = join(log, kit.name("g"), [jobs])
    settle([worker], lambda: worker.owner.owned == {0, 1})
    worker.member.start(0, {jobs: 40})
    worker.member.start(1, {jobs: 0})
    with pytest.raises(OffsetOutOfRange) as caught:
        settle([worker], lambda: False)
    assert caught.value.partition == 0
    worker.member.stop(0)
    log.producer().append([record(jobs, 0, b"zero"), record(jobs, 1, b"one")])
    settle([worker], lambda: len(worker.records) == 1)
    worker.member.start(0, {jobs: 0})
    settle([worker], lambda: len(worker.records) == 2)
    assert [one.value for one in worker.records] == [b"one", b"zero"]
