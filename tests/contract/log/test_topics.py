"""Topics: making, deleting, listing, bounds."""

from __future__ import annotations

import pytest
from tests.support.logs import LogKit, read_all, record

from rewindq.engine.ports.log import (
    AppendRefused,
    Log,
    NoSuchTopic,
    OffsetOutOfRange,
    PartitionCountMismatch,
    TopicSpec,
)


def test_a_created_topic_is_listed_with_its_partition_count(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 3)
    assert log.topics(name) == {name: 3}
    assert log.topics(kit.name("other")) == {}


def test_the_prefix_is_taken_literally(kit: LogKit, log: Log) -> None:
    kit.topic("a_b", 1)
    assert log.topics("a%") == {}
    assert kit.name("a_b") in log.topics("a_")
    kit.topic("axb", 1)
    assert kit.name("axb") not in log.topics("a_")


def test_creating_again_changes_nothing(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    log.producer().append([record(name)])
    log.create_topics([TopicSpec(name, 2)])
    assert len(read_all(log, name)) == 1


def test_another_partition_count_is_refused_by_name(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    with pytest.raises(PartitionCountMismatch, match=f"{name}.*2.*3"):
        log.create_topics([TopicSpec(name, 3)])
    assert log.topics(name) == {name: 2}


def test_a_deleted_topic_is_gone_and_unknown_names_are_passed_over(kit: LogKit, log: Log) -> None:
    kit.needs("topic administration")
    name = kit.topic("orders")
    log.producer().append([record(name)])
    log.delete_topics([kit.name("never"), name])
    assert log.topics(name) == {}
    with pytest.raises(NoSuchTopic, match=name):
        log.bounds(name, 0)


def test_a_topic_made_anew_is_empty(kit: LogKit, log: Log) -> None:
    kit.needs("topic administration")
    name = kit.topic("orders")
    producer = log.producer()
    producer.append([record(name, value=b"old")])
    log.delete_topics([name])
    log.create_topics([TopicSpec(name, 1)])
    low, end = log.bounds(name, 0)
    assert low == end
    producer.append([record(name, value=b"new")])
    assert [one.value for one in read_all(log, name)] == [b"new"]


def test_bounds_of_what_does_not_exist(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    for topic, partition in ((kit.name("never"), 0), (name, 2)):
        with pytest.raises(NoSuchTopic, match=topic):
            log.bounds(topic, partition)


def test_a_reader_of_what_does_not_exist(kit: LogKit, log: Log) -> None:
    with pytest.raises(NoSuchTopic, match=kit.name("never")):
        log.reader({(kit.name("never"), 0): 0})


def test_an_append_to_what_does_not_exist_is_refused_whole(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    with pytest.raises(AppendRefused, match=kit.name("never")):
        log.producer().append([record(kit.name("never"))])
    assert log.bounds(name, 0) == (0, 0)


def test_all_handles_see_the_same_topics_and_identity(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    other = kit.log()
    log.producer().append([record(name, value=b"x")])
    assert [one.value for one in read_all(other, name)] == [b"x"]
    assert log.identity() == other.identity() != ""


def test_what_is_past_its_retention_can_be_removed(kit: LogKit, log: Log) -> None:
    if kit.trim is None:
        pytest.skip("this log trims in its own time")
    name = kit.topic("orders", retention_ms=1000)
    producer = log.producer()
    producer.append([record(name, value=b"old", at=1000 + i) for i in range(3)])
    producer.append([record(name, value=b"new", at=9000)])
    kit.trim(log, 9500)
    low, end = log.bounds(name, 0)
    assert 3 <= low < end
    assert [one.value for one in read_all(log, name)] == [b"new"]
    assert log.offset_at(name, 0, 0) == low
    producer.append([record(name, value=b"newer", at=9001)])
    assert [one.value for one in read_all(log, name)] == [b"new", b"newer"]
    kit.trim(log, 99000)
    low, end = log.bounds(name, 0)
    assert low == end and read_all(log, name) == []


@pytest.mark.parametrize("asked", [0, 1000])
def test_a_position_outside_of_the_log_is_an_error_and_never_moved(kit: LogKit, log: Log, asked: int) -> None:
    if kit.trim is None:
        pytest.skip("this log cannot be trimmed at will")
    name = kit.topic("orders", retention_ms=1000)
    log.producer().append([record(name, at=1), record(name, at=2)])
    log.producer().append([record(name, at=9000)])
    kit.trim(log, 9500)
    reader = log.reader({(name, 0): asked})
    with pytest.raises(OffsetOutOfRange, match=f"{name}.*{asked}"):
        reader.poll(timeout=5)


def test_a_topic_that_is_made_anew_has_another_id(kit: LogKit, log: Log) -> None:
    kit.needs("topic administration")
    one, two = kit.topic("one"), kit.topic("two")
    ids = log.topic_ids([one, two])
    assert kit.log().topic_ids([one, two]) == ids
    assert len(set(ids.values())) == 2
    log.delete_topics([one])
    with pytest.raises(NoSuchTopic):
        log.topic_ids([one])
    log.create_topics([TopicSpec(one, 1)])
    again = log.topic_ids([one, two])
    assert again[two] == ids[two] and again[one] not in ids.values()
