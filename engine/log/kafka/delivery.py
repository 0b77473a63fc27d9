"""Handing records to the client library and learning what became of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from rewindq.engine.ports.log import Append, AppendRefused

from .errors import REFUSED_CODES, text
from .settings import MESSAGE_BYTES_MAX
from .topics import Topics

# What a record takes beside its key, value and headers, generously.
_RECORD_OVERHEAD = 512


def check(records: Sequence[Append], topics: Topics) -> None:
    """Refuses, before anything is sent, what the log would refuse. Raises AppendRefused."""
    for record in records:
        size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD
        size += sum(len(name) + len(value) for name, value in record.headers)
        if size > MESSAGE_BYTES_MAX:
            raise AppendRefused(
                f"a record of {size} bytes for {record.topic}[{record.partition}] is above the limit of "
                f"{MESSAGE_BYTES_MAX}: put its body into the blob store"
            )
        count = topics.partitions(record.topic)
        if not 0 <= record.partition < count:
            known = f"has {count} partitions" if count else "does not exist"
            raise AppendRefused(f"{record.topic}[{record.partition}]: the topic {known}; create it before appending")


class Delivery:
    """The records of one append or turn on their way; its callback runs in the thread that polls."""

    def __init__(self, records: Sequence[Append]) -> None:
        self.records = records
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self.pending = len(records)
        self.errors: list[KafkaError] = []

    def send(self, producer: Producer) -> None:
        """Hands all records over. Raises KafkaException when the client refuses one outright."""
        for record in self.records:
            options: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
            # The client library takes 0 for "now".
            options["timestamp"] = max(1, record.timestamp_ms)
            to = (record.topic, record.value, record.key, record.partition)
            while True:
                try:
                    producer.produce(*to, self._delivered, **options)
                    break
                except BufferError:
                    producer.poll(0.05)  # the local queue is full: it empties as the broker answers

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            key = (message.topic() or "", message.partition() or 0)
            self._offsets.setdefault(key, []).append(message.offset() or 0)
        else:
            self.errors.append(error)
        self.pending -= 1

    def wait(self, producer: Producer, timeout: float) -> bool:
        """Whether every record has its answer within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.pending and (left := deadline - time.monotonic()) > 0:
            # Another thread may serve this delivery's answers, which wakes nobody here: look again soon.
            producer.poll(min(left, 0.005))
        return not self.pending

    def refused(self) -> bool:
        """Whether the broker surely stored none of the records."""
        return len(self.errors) == len(self.records) and all(e.code() in REFUSED_CODES for e in self.errors)

    def reason(self) -> str:
        """The first error, for a message."""
        return text(self.errors[0]) if self.errors else "no answer in time"

    def offsets(self) -> list[int]:
        """The offsets in the order of the records: a partition's records keep theirs, so sorting does it."""
        waiting = {key: iter(sorted(offsets)) for key, offsets in self._offsets.items()}
        return [next(waiting[record.topic, record.partition]) for record in self.records]
