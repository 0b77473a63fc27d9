"""Commits are atomic, aborted records are never seen, and an end means that all before it is decided."""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.support.kafka import Space, event, poll_until

from rewindq.engine.log.kafka.settings import MESSAGE_BYTES_MAX
from rewindq.engine.log.kafka.transactions import Transactions
from rewindq.engine.ports.log import AppendRefused, Turn

pytestmark = pytest.mark.kafka


@pytest.fixture
def bootstrap(kafka_bootstrap: str) -> str:
    return kafka_bootstrap


def open_transaction(bootstrap: str, topic: str, value: bytes = b"foreign") -> Producer:
    """A foreign producer's transaction with one record that the broker has, not decided yet."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(10) == 0
    return producer


def test_a_turn_commits_records_and_offsets_together(space: Space) -> None:
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    appends = [event(space.events, "a"), event(space.events, "b", 1), event(space.events, "c")]
    offsets = member.commit(Turn(appends, {(space.jobs, 0): 7}, frozenset({0})))
    assert [r.value for r in space.read(space.events)] == [b"a", b"c"]
    assert [(r.offset, r.value) for r in space.read(space.events, 1)] == [(offsets[1], b"b")]
    assert [r.offset for r in space.read(space.events)] == [offsets[0], offsets[2]]
    assert space.committed() == {0: 7}
    member.close()


def test_a_refused_turn_leaves_nothing_and_the_member_goes_on(space: Space) -> None:
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    for bad in (
        event(space.events, "x" * MESSAGE_BYTES_MAX),
        event(space.events, "x", 9),
        event("no-such", "x"),
    ):
        with pytest.raises(AppendRefused):
            member.commit(Turn([event(space.events, "half"), bad], {(space.jobs, 0): 3}, frozenset({0})))
    member.commit(Turn([event(space.events, "whole")], {(space.jobs, 0): 4}, frozenset({0})))
    assert [r.value for r in space.read(space.events)] == [b"whole"]
    assert space.committed() == {0: 4}
    member.close()


def test_a_turn_refused_by_the_broker_leaves_nothing(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's limit is what counts when the local check does not know better."""
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    monkeypatch.setattr("rewindq.engine.log.kafka.member.check", lambda *_: None)
    with pytest.raises(AppendRefused):
        member.commit(Turn([event(space.events, "a"), event(space.events, "x", 9)], {}, frozenset({0})))
    member.commit(Turn([event(space.events, "b")], {}, frozenset({0})))
    assert [r.value for r in space.read(space.events)] == [b"b"]
    member.close()


def test_a_turn_that_fails_before_its_commit_is_aborted(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are with the broker already, and must neither appear nor stand in the next turn's way."""
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)

    def failing(_self: Transactions, producer: Producer, *_: object) -> None:
        assert producer.flush(10) == 0
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "_send_offsets", failing)
        with pytest.raises(AppendRefused, match="nothing was appended"):
            member.commit(Turn([event(space.events, "half")], {}, frozenset({0})))
    member.commit(Turn([event(space.events, "whole")], {}, frozenset({0})))
    assert [r.value for r in space.read(space.events)] == [b"whole"]
    member.close()


def test_aborted_records_are_never_read(space: Space, bootstrap: str) -> None:
    producer = open_transaction(bootstrap, space.events)
    producer.abort_transaction(10)
    space.log.producer().append([event(space.events, "kept")])
    assert [r.value for r in space.read(space.events)] == [b"kept"]


def test_the_end_waits_for_the_decision(space: Space, bootstrap: str) -> None:
    """Who reads the end to learn what became of a commit must not get one from before the decision."""
    producer = open_transaction(bootstrap, space.events)
    found: list[tuple[int, int]] = []
    asking = threading.Thread(target=lambda: found.append(space.log.bounds(space.events, 0)))
    asking.start()
    asking.join(0.3)
    assert not found
    producer.commit_transaction(10)
    asking.join(10)
    # The marker of the commit takes an offset of its own.
    assert found == [(0, 2)]
    assert [r.value for r in space.read(space.events)] == [b"foreign"]


def test_a_takeover_waits_for_the_earlier_owners_transaction(space: Space, bootstrap: str) -> None:
    """Its records would otherwise appear before the new owner's, after the new owner has read the log."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": space.group})
    producer = open_transaction(bootstrap, space.events)
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([KafkaPartition(space.jobs, 0, 5)], metadata, 10)
    member, told = space.join()
    poll_until(lambda: told.owned == {1}, member)
    for _ in range(10):
        member.poll(0.02)
    assert told.owned == {1}
    producer.commit_transaction(10)
    poll_until(lambda: told.owned == {0, 1}, member)
    # A turn without offsets of its own repeats what the group has, never less.
    member.commit(Turn([], {}, frozenset({0, 1})))
    assert space.committed() == {0: 5, 1: 0}
    member.close()
    consumer.close()
