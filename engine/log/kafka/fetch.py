"""Fetching committed records of chosen partitions: one consumer, used by readers and by members.

Only the thread that polls calls the consumer: the client library makes other threads wait until nobody polls, and
a member is polled without a pause. So the others note what is to change, and the next poll does it first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from rewindq.engine.ports.log import (
    LogDamaged,
    LogError,
    NoSuchTopic,
    OffsetOutOfRange,
    Record,
    TopicPartition,
)

from .bounds import Bounds
from .errors import TOPIC_MISSING_CODES, text, tp

_DAMAGED_CODES = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._LOG_TRUNCATION})
_RANGE_CODES = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_FINAL_CODES = _DAMAGED_CODES | _RANGE_CODES | TOPIC_MISSING_CODES


_Headers = list[tuple[str, bytes | None]]
# A method of the consumer, and the partitions to call it with.
_Change = tuple[Callable[[list[KafkaPartition]], object], list[KafkaPartition]]


class Fetcher:
    """Reads assigned partitions in offset order. `poll` is for one thread at a time, the rest for any."""

    def __init__(self, config: Mapping[str, Any], bounds: Bounds) -> None:
        self._consumer = Consumer(dict(config))
        self._bounds = bounds
        self._lock = threading.Lock()
        # The next offset of each assigned partition; records of others are dropped.
        self._next: dict[TopicPartition, int] = {}
        self._changes: list[_Change] = []
        # Partitions whose new offset the consumer has not heard of yet: what comes is from before, and is dropped.
        self._moving: set[TopicPartition] = set()
        self._failed: tuple[KafkaError, TopicPartition] | None = None
        self._closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Adds partitions at these offsets; one that is assigned already moves there."""
        with self._lock:
            self._drop(self._next.keys() & positions.keys())
            self._next.update(positions)
            self._moving.update(positions)
            if positions:
                added = [tp(*key, offset) for key, offset in positions.items()]
                self._changes.append((self._consumer.incremental_assign, added))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions; unknown ones are passed over."""
        with self._lock:
            self._drop(self._next.keys() & set(partitions))

    def _drop(self, known: Collection[TopicPartition]) -> None:
        if known:
            self._changes.append((self._consumer.incremental_unassign, [tp(*key) for key in known]))
        for key in list(known):
            del self._next[key]
            if self._failed is not None and self._failed[1] == key:
                self._failed = None

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Delivers nothing of these until `resume`."""
        with self._lock:
            self._changes.append((self._consumer.pause, self._known(partitions)))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Delivers these again, from where they were paused."""
        with self._lock:
            self._changes.append((self._consumer.resume, self._known(partitions)))

    def _known(self, partitions: Collection[TopicPartition]) -> list[KafkaPartition]:
        """Those that are still read here: the client refuses the whole call for one that is not."""
        return [tp(*key) for key in partitions if key in self._next]

    def _apply(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
            for change, partitions in changes:
                change(partitions)
            self._moving.clear()

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be read. Raises NoSuchTopic for a partition that is not assigned."""
        try:
            return self._next[topic, partition]
        except KeyError:
            raise NoSuchTopic(f"{topic}[{partition}] is not read here") from None

    def poll(self, limit: int, timeout: float) -> list[Record]:
        """Up to `limit` records; waits up to `timeout` seconds for one, or until a position passes a marker.

        Raises OffsetOutOfRange, NoSuchTopic or LogDamaged, after the records that came before the failure.
        """
        deadline = time.monotonic() + timeout
        while True:
            self._apply()
            if self._failed is not None:
                raise self._failure(*self._failed)
            # `consume` alone would wait for `limit` messages; the first comes by `poll`, the rest is at hand.
            first = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            if first is None:
                return []
            rest = self._consumer.consume(limit - 1, 0) if limit > 1 else []
            records, moved = self._take([first, *rest])
            if records or moved or (time.monotonic() >= deadline and self._failed is None):
                return records

    def _take(self, messages: list[Message]) -> tuple[list[Record], bool]:
        records: list[Record] = []
        moved = False
        with self._lock:
            for message in messages:
                key = (message.topic() or "", _number(message.partition()))
                expected = self._next.get(key)
                if expected is None or key in self._moving:
                    continue  # of a dropped partition, or of a connection, which the client mends itself
                error = message.error()
                offset = _number(message.offset())
                if error is None:
                    if offset >= expected:
                        self._next[key] = offset + 1
                        records.append(_record(key, offset, message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    moved = moved or offset > expected
                    self._next[key] = max(expected, offset)
                elif error.code() in _FINAL_CODES:
                    self._failed = (error, key)
        return records, moved

    def _failure(self, error: KafkaError, key: TopicPartition) -> LogError:
        topic, partition = key
        if error.code() in TOPIC_MISSING_CODES:
            return NoSuchTopic(f"{topic}[{partition}] cannot be read: {text(error)}; was the topic deleted?")
        if error.code() in _DAMAGED_CODES:
            return LogDamaged(
                f"{topic}[{partition}] at offset {self.position(*key)}: {text(error)}; the records differ "
                "from what was acknowledged: check its disks before going on"
            )
        low, end = self._bounds(topic, partition)
        return OffsetOutOfRange(
            f"{topic}[{partition}]: offset {self.position(*key)} was asked for, it holds {low} up to {end}; "
            "records were removed or the log is another one: rebuild the store from what is there",
            partition,
        )

    def close(self) -> None:
        """Frees the consumer; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._consumer.close()


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _record(key: TopicPartition, offset: int, message: Message) -> Record:
    headers = message.headers()
    return Record(
        key[0],
        key[1],
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        # The stubs allow a mapping of texts too, for records that were not read from a log.
        tuple((name, value or b"") for name, value in cast("_Headers", headers)) if headers else (),
    )
