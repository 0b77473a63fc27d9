"""Appending and reading."""

from __future__ import annotations

import threading
import time

import pytest
from tests.support.logs import LogKit, read_all, record

from rewindq.engine.ports.log import Append, Log


def test_offsets_and_order_within_each_partition(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    appends = [record(name, i % 2, b"%d" % i) for i in range(50)]
    offsets = log.producer().append(appends)
    for partition in (0, 1):
        mine = [offset for offset, one in zip(offsets, appends, strict=True) if one.partition == partition]
        assert mine == sorted(set(mine))
        records = read_all(log, name, partition)
        assert [one.offset for one in records] == mine
        assert [one.value for one in records] == [b"%d" % i for i in range(50) if i % 2 == partition]


def test_everything_of_a_record_comes_back(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    appends = [
        Append(name, 0, None, None, 1),
        Append(name, 0, b"", b"", 2),
        Append(name, 0, "ключ\0x".encode(), b"\0\xff" * 10, 1_700_000_000_123),
        Append(name, 0, b"k", b"v", 3, (("h", b"1"), ("h", b""), ("größe", b"\0"))),
    ]
    log.producer().append(appends)
    back = [Append(r.topic, r.partition, r.key, r.value, r.timestamp_ms, r.headers) for r in read_all(log, name)]
    assert back == appends


def test_a_large_record(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    big = bytes(range(256)) * 3600  # 0.9 MB: what Kafka takes without further settings
    log.producer().append([record(name, value=b"a"), record(name, value=big), record(name, value=b"c")])
    assert [one.value for one in read_all(log, name)] == [b"a", big, b"c"]


def test_many_records_in_one_append(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    log.producer().append([record(name, value=b"%06d" % i, at=i) for i in range(5000)])
    assert [one.value for one in read_all(log, name)] == [b"%06d" % i for i in range(5000)]


def test_an_empty_partition_is_at_its_end(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    reader = log.reader({(name, 0): 0, (name, 1): 0})
    assert reader.poll() == []
    assert reader.position(name, 1) == log.bounds(name, 1)[1] == 0


def test_a_position_never_passes_what_was_not_handed_out(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    offsets = log.producer().append([record(name, value=b"%d" % i) for i in range(10)])
    reader = log.reader({(name, 0): 0})
    seen = []
    while len(seen) < 10:
        records = reader.poll(limit=3, timeout=5)
        assert 0 < len(records) <= 3
        seen += records
        if len(seen) < 10:
            assert reader.position(name, 0) == offsets[len(seen)]
    deadline = time.monotonic() + 10
    while reader.position(name, 0) < log.bounds(name, 0)[1]:
        assert time.monotonic() < deadline
        assert reader.poll(timeout=0.05) == []
    assert [one.offset for one in seen] == offsets


def test_a_reader_begins_in_the_middle(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    offsets = log.producer().append([record(name, value=b"%d" % i) for i in range(600)])
    for start in (0, 1, 255, 256, 257, 599):
        records = read_all(log, name, start=offsets[start])
        assert [one.offset for one in records] == offsets[start:]


def test_offset_at_a_time(kit: LogKit, log: Log) -> None:
    kit.needs("offsets by time")
    name = kit.topic("orders")
    producer = log.producer()
    offsets = [offset for at in (100, 300, 200, 400) for offset in producer.append([record(name, at=at)])]
    end = log.bounds(name, 0)[1]
    found = [log.offset_at(name, 0, at) for at in (0, 100, 101, 300, 301, 400, 401)]
    assert found[:-1] == [offsets[i] for i in (0, 0, 1, 1, 3, 3)]
    assert found[-1] == end


def test_offset_at_within_one_append(kit: LogKit, log: Log) -> None:
    kit.needs("offsets by time")
    # Not from 0 on: Kafka's client takes a timestamp of 0 for "now".
    name = kit.topic("orders")
    offsets = log.producer().append([record(name, at=10 * (i + 1)) for i in range(700)])
    assert [log.offset_at(name, 0, 10 * i + 5) for i in (1, 256, 300, 699)] == [offsets[i] for i in (1, 256, 300, 699)]


def test_a_waiting_reader_is_woken_by_an_append(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    reader = log.reader({(name, 0): 0})
    reader.poll(timeout=0.1)
    producer = kit.log().producer()
    timer = threading.Timer(0.1, lambda: producer.append([record(name)]))
    timer.start()
    begun = time.monotonic()
    records = reader.poll(timeout=20)
    assert len(records) == 1 and time.monotonic() - begun < 10
    timer.join()


def test_many_threads_append_without_loss_or_disorder(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders", 2)
    shared = log.producer()
    offsets: dict[int, list[int]] = {}

    def append(number: int) -> None:
        producer = shared if number % 2 else log.producer()
        offsets[number] = [producer.append([record(name, number % 2, b"%d %d" % (number, i))])[0] for i in range(20)]

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for partition in (0, 1):
        places = {one.offset: one.value for one in read_all(log, name, partition)}
        assert len(places) == 80
        for number in range(partition, 8, 2):
            assert [places[offset] for offset in offsets[number]] == [b"%d %d" % (number, i) for i in range(20)]
            assert offsets[number] == sorted(offsets[number])


def test_an_empty_append_does_nothing(kit: LogKit, log: Log) -> None:
    name = kit.topic("orders")
    assert log.producer().append([]) == []
    assert log.bounds(name, 0) == (0, 0)


def test_a_closed_reader_can_be_closed_again(kit: LogKit, log: Log) -> None:
    reader = log.reader({(kit.topic("orders"), 0): 0})
    reader.close()
    reader.close()


@pytest.mark.parametrize("limit", [1, 7])
def test_limits_hold_over_several_partitions(kit: LogKit, log: Log, limit: int) -> None:
    name = kit.topic("orders", 3)
    log.producer().append([record(name, i % 3, b"%d" % i) for i in range(30)])
    reader = log.reader({(name, partition): 0 for partition in range(3)})
    seen = []
    while len(seen) < 30:
        records = reader.poll(limit=limit, timeout=5)
        assert 0 < len(records) <= limit
        seen += records
    assert sorted(int(one.value or b"") for one in seen) == list(range(30))
