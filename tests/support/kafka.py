"""What the Kafka tests share: a log with topics of its own, and members that note what they are told."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

from rewindq.engine.log.kafka import KafkaLog, open_kafka
from rewindq.engine.log.kafka.member import KafkaMember
from rewindq.engine.ports.log import Append, Record, TopicSpec

# A broker's own lower limit is 6 s; the local one allows less.
SESSION_TIMEOUT_MS = 6000 if "KAFKA_BOOTSTRAP" in os.environ else 1500
WAIT = 30.0


class Space:
    """A log and names that no other test uses."""

    def __init__(self, bootstrap: str, partitions: int = 2, options: str = "") -> None:
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.jobs, self.events, self.group = f"{self.name}.jobs", f"{self.name}.events", f"{self.name}.worker"
        self.url = f"kafka://{bootstrap}?session_timeout_ms={SESSION_TIMEOUT_MS}{options}"
        self.log: KafkaLog = open_kafka(self.url)
        self.log.create_topics([TopicSpec(self.jobs, partitions), TopicSpec(self.events, partitions)])

    def join(self, name: str = "worker") -> tuple[KafkaMember, Told]:
        told = Told()
        return self.log.join(self.group, [self.jobs, self.events], told, name=name), told

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        """All committed records of a partition."""
        low, end = self.log.bounds(topic, partition)
        reader = self.log.reader({(topic, partition): low})
        records: list[Record] = []
        try:
            until(lambda: records.extend(reader.poll(timeout=0.2)) or reader.position(topic, partition) >= end)
        finally:
            reader.close()
        return records

    def committed(self) -> dict[int, int]:
        """The group's offsets of the jobs topic."""
        (state,) = self.log.groups(self.group)
        return {partition: offset for (topic, partition), offset in state.offsets.items() if topic == self.jobs}

    def close(self) -> None:
        self.log.delete_topics([self.jobs, self.events])
        self.log.close()


class Told:
    """An Ownership that notes."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.calls: list[tuple[str, list[int]]] = []
        self.on_revoked: Callable[[list[int]], None] = lambda _: None

    def assigned(self, partitions: list[int]) -> None:
        self.calls.append(("assigned", partitions))
        self.owned.update(partitions)

    def revoked(self, partitions: list[int]) -> None:
        self.calls.append(("revoked", partitions))
        self.on_revoked(partitions)
        self.owned.difference_update(partitions)

    def lost(self, partitions: list[int]) -> None:
        self.calls.append(("lost", partitions))
        self.owned.difference_update(partitions)


def event(topic: str, value: str, partition: int = 0) -> Append:
    return Append(topic, partition, b"key", value.encode(), 1_700_000_000_000)


def until(done: Callable[[], object], timeout: float = WAIT) -> None:
    """Calls `done` until it answers something true; it is expected to wait a little itself."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"{done} did not come true within {timeout} s"


def poll_until(done: Callable[[], object], *members: KafkaMember) -> None:
    """Polls members until the condition holds."""

    def step() -> object:
        for member in members:
            member.poll(0.02)
        return done()

    until(step)
