"""Folding the tail of a log into a store: whole, once, and refused where log and store do not belong together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.histories import histories
from tests.support.writers import fence, numbered

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core.events import EventRecord
from rewindq.engine.core.merge import GapInLog
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.ports.log import Append, LogDamaged, Reader, Record, TopicPartition, TopicSpec
from rewindq.engine.ports.store import Family, Put, Store
from rewindq.engine.runtime.recover import PartitionTopics, StoreAhead, Tail
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.newest import POSITIONS, encode_positions, read_positions

SOURCE = PartitionTopics("lifecycle", "domain", 0)
CODEC = Codec()


def new_log() -> MemoryLog:
    log = MemoryLog()
    log.create_topics([TopicSpec("lifecycle", 1), TopicSpec("domain", 1)])
    return log


def append(log: MemoryLog, *records: tuple[str, EventRecord]) -> None:
    log.producer().append([Append(topic, 0, None, CODEC.encode(record), 0) for topic, record in records])


def catch_up(log: MemoryLog, store: Store) -> Tail:
    tail = Tail(log, CODEC, SOURCE, store)
    tail.catch_up()
    return tail


def placed(record: EventRecord) -> tuple[str, EventRecord]:
    return record.events[0].body.topic, replace(record, worker_id="w1")


@settings(max_examples=40)
@given(records=histories(steps=40), cuts=st.lists(st.integers(0, 9), max_size=8))
def test_a_store_that_kept_up_equals_one_that_is_rebuilt(records: list[EventRecord], cuts: list[int]) -> None:
    log, store = new_log(), MemoryStore()
    append(log, ("lifecycle", fence(1)), ("domain", fence(1)))
    rest = list(records)
    for cut in [*cuts, len(records)]:
        if rest[:cut]:
            append(log, *map(placed, rest[:cut]))
        rest = rest[cut:]
        catch_up(log, store)
    rebuilt = MemoryStore()
    catch_up(log, rebuilt)

    assert rebuilt.digest() == store.digest()
    positions = read_positions(store)
    assert positions is not None
    assert (positions.seq, positions.applied_epoch) == (records[-1].next_seq, 1)


def test_events_are_counted_and_traced_to_their_records() -> None:
    log, store = new_log(), MemoryStore()
    append(
        log, ("lifecycle", fence(1)), ("domain", fence(1)), ("domain", numbered(0, 1, 2)), ("domain", numbered(2, 1))
    )
    tail = Tail(log, CODEC, SOURCE, store)

    assert tail.catch_up() == 3
    assert tail.catch_up() == 0
    assert [(key[-8:], value) for key, value in store.scan(Family.TRACES)] == [
        (bytes(8), b"\x01\x01"),
        (b"\0" * 7 + b"\x02", b"\x01\x02"),
    ]


def test_stale_records_are_shown_and_not_applied() -> None:
    log, store = new_log(), MemoryStore()
    append(log, ("lifecycle", fence(1)), ("domain", fence(1)), ("lifecycle", fence(2)), ("domain", fence(2)))
    append(log, ("domain", numbered(0, 1)), ("domain", numbered(0, 2)))
    seen = []
    tail = Tail(log, CODEC, SOURCE, store, watch=seen.append)
    tail.catch_up()

    assert [item.offset for item in tail.stale] == [2]
    assert len(seen) == 6
    assert tail.positions.seq == 1


class BusyReader:
    """Reads one topic after the other, as a network does; in between an owner commits to both."""

    def __init__(self, log: Busy, positions: Mapping[TopicPartition, int]) -> None:
        self._log = log
        self._readers = {place: log.read_quietly({place: position}) for place, position in positions.items()}

    def poll(self, limit: int = 1000, timeout: float = 0.0) -> list[Record]:
        lifecycle, domain = self._readers["lifecycle", 0], self._readers["domain", 0]
        found = lifecycle.poll(limit, 0)
        self._log.commit()
        return found + domain.poll(limit, 0)

    def position(self, topic: str, partition: int) -> int:
        return self._readers[topic, partition].position(topic, partition)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class Busy(MemoryLog):
    """A log whose owner commits three times while it is read."""

    commits = 0

    def commit(self) -> None:
        if self.commits < 3:
            seq = 2 * self.commits
            append(self, ("lifecycle", numbered(seq, 1)), ("domain", numbered(seq + 1, 1)))
            self.commits += 1

    def read_quietly(self, positions: Mapping[TopicPartition, int]) -> Reader:
        return super().reader(positions)

    def reader(self, positions: Mapping[TopicPartition, int]) -> BusyReader:  # type: ignore[override]
        return BusyReader(self, positions)


def test_a_commit_while_the_topics_are_read_is_no_gap() -> None:
    """The domain topic shows its half of the commit, the lifecycle topic was read before."""
    log = Busy()
    log.create_topics([TopicSpec("lifecycle", 1), TopicSpec("domain", 1)])
    append(log, ("lifecycle", fence(1)), ("domain", fence(1)))
    tail = catch_up(log, MemoryStore())

    assert (log.commits, tail.positions.seq) == (3, 6)


def test_a_gap_is_refused() -> None:
    log = new_log()
    append(log, ("lifecycle", fence(1)), ("domain", fence(1)), ("domain", numbered(1, 1)))
    with pytest.raises(GapInLog, match="domain offset 1 begins with event 1, but event 0 is missing"):
        catch_up(log, MemoryStore())


def test_a_record_that_cannot_be_decoded_is_damage_by_its_place() -> None:
    log = new_log()
    append(log, ("domain", fence(1)))
    log.producer().append([Append("domain", 0, None, b"garbage", 0)])
    with pytest.raises(LogDamaged, match="domain partition 0 offset 1 cannot be decoded"):
        catch_up(log, MemoryStore())


def test_a_store_of_another_log_is_refused_by_both_names() -> None:
    log, store = new_log(), MemoryStore()
    catch_up(log, store)
    other = new_log()
    with pytest.raises(StoreAhead, match=f"made from log {log.identity()}, this is log {other.identity()}"):
        Tail(other, CODEC, SOURCE, store)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"offsets": {"lifecycle": 2}}, "reflects lifecycle partition 0 up to offset 2, but the log ends at 1"),
        ({"offsets": {"domain": 1}}, "reflects domain partition 0 up to offset 1, but the log ends at 0"),
        ({"state_format": 99}, "state format 99, this version writes"),
    ],
)
def test_a_store_that_is_ahead_is_refused(fields: dict[str, object], reason: str) -> None:
    log, store = new_log(), MemoryStore()
    append(log, ("lifecycle", fence(1)))
    tail = catch_up(log, store)
    store.write([Put(Family.META, POSITIONS, encode_positions(replace(tail.positions, **fields)))])

    with pytest.raises(StoreAhead, match=reason):
        Tail(log, CODEC, SOURCE, store)
