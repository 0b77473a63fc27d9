"""Static members: who comes back within the session time-out keeps its partitions, and nobody else is disturbed."""

from __future__ import annotations

import time

import pytest
from tests.support.kafka import SESSION_TIMEOUT_MS, Space, Told, event, poll_until

from rewindq.engine.log.kafka import KafkaLog, open_kafka
from rewindq.engine.log.kafka.member import KafkaMember
from rewindq.engine.log.kafka.settings import with_instance
from rewindq.engine.ports.log import LogError, LogUnavailable, Turn

pytestmark = pytest.mark.kafka


class Static:
    """A static member with a log of its own."""

    def __init__(self, space: Space, instance: str) -> None:
        self.log: KafkaLog = open_kafka(with_instance(space.url, instance))
        self.told = Told()
        self.member: KafkaMember = self.log.join(space.group, [space.jobs, space.events], self.told, name=instance)

    def end(self) -> None:
        """As a process ends: nothing tells the group."""
        self.log.close()


@pytest.fixture
def pair(space: Space) -> tuple[Static, Static]:
    one, two = Static(space, "one"), Static(space, "two")
    poll_until(lambda: len(one.told.owned) == len(two.told.owned) == 1, one.member, two.member)
    return one, two


def test_a_restarted_member_keeps_its_partition_and_the_other_is_not_asked(
    space: Space, pair: tuple[Static, Static]
) -> None:
    one, two = pair
    before, calls = set(one.told.owned), list(two.told.calls)
    one.end()
    again = Static(space, "one")
    poll_until(lambda: again.told.owned, again.member, two.member)
    assert again.told.owned == before
    (partition,) = before
    turn = Turn([event(space.events, "again", partition)], {(space.jobs, partition): 3}, frozenset({partition}))
    assert again.member.commit(turn)
    assert two.told.calls == calls
    again.end()
    two.end()


def test_one_that_stays_away_loses_its_partition_after_the_session_time_out(
    space: Space, pair: tuple[Static, Static]
) -> None:
    one, two = pair
    one.end()
    began = time.monotonic()
    poll_until(lambda: len(two.told.owned) == 2, two.member)
    assert time.monotonic() - began > SESSION_TIMEOUT_MS / 1000 * 0.3
    two.end()


def test_a_second_member_of_the_same_id_takes_the_place_and_the_first_ends_by_name(
    space: Space, pair: tuple[Static, Static]
) -> None:
    one, two = pair
    (partition,) = one.told.owned
    usurper = Static(space, "one")
    poll_until(lambda: usurper.told.owned == {partition}, usurper.member, two.member)
    with pytest.raises(LogError):
        one.member.commit(Turn([event(space.events, "old", partition)], {}, frozenset({partition})))
    with pytest.raises(LogUnavailable, match="cannot go on"):
        poll_until(lambda: False, one.member, usurper.member, two.member)
    assert [record.value for record in space.read(space.events, partition)] == []
    for each in (one, two, usurper):
        each.end()


def test_an_id_replaces_the_one_in_the_address() -> None:
    given = "kafka://a:1,b:2?session_timeout_ms=7000&instance=x&security.protocol=SSL"
    assert with_instance(given, "y&z") == (
        "kafka://a:1,b:2?session_timeout_ms=7000&security.protocol=SSL&instance=y%26z"
    )
    with pytest.raises(LogUnavailable, match="no Kafka address"):
        with_instance("sqlite:///x", "y")
