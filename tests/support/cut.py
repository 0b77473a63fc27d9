"""Removing the oldest records of a partition, as retention does, on either log; and jobs that stay on a partition."""

from __future__ import annotations

import time
from itertools import count

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import Log

#: Far behind every retention: a record of this time is cut by the next look.
OLD_MS = 1


def cut(log: Log, topic: str, partition: int, low: int) -> None:
    """Makes `low` the partition's first offset. On the local logs what goes must have been appended with `OLD_MS`."""
    if isinstance(log, SqliteLog | MemoryLog):
        log.trim(time.time_ns() // 10**6)
    else:
        admin = AdminClient({"bootstrap.servers": log.url.removeprefix("kafka://").partition("?")[0]})
        place = TopicPartition(topic, partition, low)
        admin.delete_records([place])[place].result(10)
    assert log.bounds(topic, partition)[0] == low


def key_on(partition: int, partitions: int) -> str:
    """A key whose home is this partition."""
    return next(key for n in count() if partition_for((key := f"k{n}").encode(), partitions) == partition)
