"""Reading to the end over markers, gaps and removed records; offsets that are not there are errors."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka import Space, event, poll_until, until

from rewindq.engine.ports.log import OffsetOutOfRange, Turn

pytestmark = pytest.mark.kafka


def remove_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, 0, offset)]).values():
        future.result()


def test_a_position_reaches_the_end_over_markers_and_empty_partitions(space: Space) -> None:
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    for number in range(3):
        member.commit(Turn([event(space.events, str(number))], {}, frozenset({0})))
    ends = {(space.events, partition): space.log.bounds(space.events, partition)[1] for partition in (0, 1)}
    assert ends == {(space.events, 0): 6, (space.events, 1): 0}
    reader = space.log.reader(dict.fromkeys(ends, 0))
    seen = []
    until(lambda: seen.extend(reader.poll(timeout=0.1)) or all(reader.position(*tp) == end for tp, end in ends.items()))
    assert [record.offset for record in seen] == [0, 2, 4]
    reader.close()
    member.close()


def test_removed_records_move_the_low_and_are_not_skipped_silently(space: Space, kafka_bootstrap: str) -> None:
    space.log.producer().append([event(space.events, str(number)) for number in range(5)])
    remove_before(kafka_bootstrap, space.events, 3)
    assert space.log.bounds(space.events, 0) == (3, 5)
    assert [record.value for record in space.read(space.events)] == [b"3", b"4"]
    reader = space.log.reader({(space.events, 0): 1})
    with pytest.raises(OffsetOutOfRange, match=r"offset 1 was asked for, it holds 3 up to 5"):
        until(lambda: reader.poll(timeout=0.5))
    reader.close()


def test_an_offset_above_the_end_is_an_error(space: Space) -> None:
    space.log.producer().append([event(space.events, "only")])
    reader = space.log.reader({(space.events, 0): 40})
    with pytest.raises(OffsetOutOfRange, match=r"offset 40 was asked for, it holds 0 up to 1"):
        until(lambda: reader.poll(timeout=0.5))
    reader.close()


def test_what_was_read_before_a_failure_is_delivered_first(space: Space) -> None:
    space.log.producer().append([event(space.events, "good", 1)])
    reader = space.log.reader({(space.events, 0): 40, (space.events, 1): 0})
    seen = []
    with pytest.raises(OffsetOutOfRange):
        until(lambda: seen.extend(reader.poll(timeout=0.5)) and False)
    assert [record.value for record in seen] in ([b"good"], [])
    assert reader.position(space.events, 1) == len(seen)
    reader.close()


def test_a_member_starts_anew_at_an_earlier_offset_without_stale_records(space: Space) -> None:
    space.log.producer().append([event(space.jobs, str(number)) for number in range(50)])
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    assert member.poll(0.2) == []
    member.start(0, {space.jobs: 20, space.events: 0})
    first = []
    until(lambda: first.extend(member.poll(0.1, limit=5)) or first)
    assert [record.offset for record in first] == list(range(20, 20 + len(first)))
    member.start(0, {space.jobs: 10, space.events: 0})
    again = []
    until(lambda: again.extend(member.poll(0.1)) or len(again) >= 40)
    assert [record.offset for record in again] == list(range(10, 50))
    member.close()


def test_a_paused_partition_keeps_its_position(space: Space) -> None:
    space.log.producer().append([event(space.jobs, str(number)) for number in range(50)])
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    member.start(0, {space.jobs: 0, space.events: 0})
    seen = []
    until(lambda: seen.extend(member.poll(0.1, limit=10)) or seen)
    member.pause(0)
    assert [member.poll(0.05) for _ in range(5)] == [[]] * 5
    member.unpause(0)
    until(lambda: seen.extend(member.poll(0.1, limit=10)) or len(seen) >= 50)
    assert [record.offset for record in seen] == list(range(50))
    member.close()
