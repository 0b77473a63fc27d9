"""The log implementations that the contract suite runs against.

To add one: write a function that takes pytest's request and returns a LogKit, and add it to IMPLEMENTATIONS
with `pytest.param(function, id=..., marks=...)`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.kafka_mock import LACKS, SESSION_TIMEOUT_MS, MockCluster, tolerate_markers

from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import Append, Log, Member, Record, TopicSpec, Turn

# Long enough for a group of a real broker to settle; a failing test waits so long, a passing one never.
SETTLE_S = 40.0


@dataclass
class LogKit:
    """One log under test: `open` gives another handle on it."""

    open: Callable[[], Log]
    # Removes records older than `now_ms` minus their topic's retention; None: the log does it in its own
    # time.
    trim: Callable[[Log, int], None] | None = None
    # What this log cannot do, each with the reason; the contract itself knows no exceptions.
    lacks: Mapping[str, str] = field(default_factory=dict)
    # Makes a topic where the log itself cannot.
    make_topic: Callable[[str, int], None] | None = None
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    opened: list[Log] = field(default_factory=list)

    def log(self) -> Log:
        """A handle that is closed at the end of the test."""
        log = self.open()
        self.opened.append(log)
        return log

    def name(self, word: str) -> str:
        """A topic or group name that no other test uses: brokers are shared between tests."""
        return f"{word}.{self.suffix}"

    def topic(self, word: str, partitions: int = 1, retention_ms: int | None = None) -> str:
        """A new topic."""
        name = self.name(word)
        if self.make_topic is not None:
            self.make_topic(name, partitions)
        else:
            self.log().create_topics([TopicSpec(name, partitions, retention_ms)])
        return name

    def needs(self, *abilities: str) -> None:
        """Skips the rest of the test where the log lacks one of these; what comes before it has been checked."""
        for ability in abilities:
            if ability in self.lacks:
                pytest.skip(f"{ability}: {self.lacks[ability]}")

    def close(self) -> None:
        for log in self.opened:
            log.close()


def _trim(log: Log, now_ms: int) -> None:
    assert isinstance(log, (MemoryLog, SqliteLog))
    log.trim(now_ms)


def memory(request: pytest.FixtureRequest) -> LogKit:
    state = MemoryState()
    return LogKit(open=lambda: MemoryLog(state), trim=_trim)


def memory_with_markers(request: pytest.FixtureRequest) -> LogKit:
    """Offsets with gaps, as Kafka has them."""
    state = MemoryState(markers=True)
    return LogKit(open=lambda: MemoryLog(state), trim=_trim)


def sqlite(request: pytest.FixtureRequest) -> LogKit:
    path: Path = request.getfixturevalue("tmp_path") / "log.db"
    return LogKit(open=lambda: SqliteLog(path), trim=_trim)


def kafka(request: pytest.FixtureRequest) -> LogKit:
    """A real broker, shared by the whole test run. It removes old records in its own time."""
    bootstrap: str = request.getfixturevalue("kafka_bootstrap")
    return LogKit(open=lambda: open_kafka(f"kafka://{bootstrap}"))


def kafka_mock(request: pytest.FixtureRequest) -> LogKit:
    """librdkafka's mock cluster, one in each process of the test run: no broker is needed."""
    cluster: MockCluster = request.getfixturevalue("kafka_mock_cluster")
    tolerate_markers(request.getfixturevalue("monkeypatch"))
    url = f"kafka://{cluster.bootstrap}?session_timeout_ms={SESSION_TIMEOUT_MS}"
    return LogKit(open=lambda: open_kafka(url), lacks=LACKS, make_topic=cluster.create_topic)


IMPLEMENTATIONS = [
    pytest.param(memory, id="memory"),
    pytest.param(memory_with_markers, id="memory-markers"),
    pytest.param(sqlite, id="sqlite"),
    pytest.param(kafka_mock, id="kafka-mock"),
    pytest.param(kafka, id="kafka", marks=pytest.mark.kafka),
]


class Owner:
    """An Ownership that notes what it is told, and starts assigned partitions when given topics to start."""

    def __init__(self, start: tuple[str, ...] = (), offset: int = 0) -> None:
        self.member: Member | None = None
        self.owned: set[int] = set()
        self.told: list[tuple[str, list[int]]] = []
        self._start = start
        self._offset = offset

    def assigned(self, partitions: list[int]) -> None:
        self.told.append(("assigned", partitions))
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)
        if self._start and self.member:
            for partition in partitions:
                self.member.start(partition, dict.fromkeys(self._start, self._offset))

    def revoked(self, partitions: list[int]) -> None:
        self.told.append(("revoked", partitions))
        self.owned -= set(partitions)

    def lost(self, partitions: list[int]) -> None:
        self.told.append(("lost", partitions))
        self.owned -= set(partitions)


@dataclass
class Worker:
    """A member with its owner."""

    member: Member
    owner: Owner
    records: list[Record] = field(default_factory=list)

    def poll(self, timeout: float = 0.02) -> list[Record]:
        records = self.member.poll(timeout)
        self.records += records
        return records


def join(log: Log, group: str, inputs: list[str], name: str = "w", *, start: bool = False, offset: int = 0) -> Worker:
    """A member; with `start` it reads every partition assigned to it from `offset`."""
    owner = Owner(tuple(inputs) if start else (), offset)
    member = log.join(group, inputs, owner, name=name)
    owner.member = member
    return Worker(member, owner)


def settle(workers: list[Worker], done: Callable[[], bool], timeout: float = SETTLE_S) -> None:
    """Polls the workers in turn until `done`."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, [(worker.owner.owned, worker.owner.told) for worker in workers]
        for worker in workers:
            worker.poll()


def record(topic: str, partition: int = 0, value: bytes | None = b"v", key: bytes | None = None, at: int = 1) -> Append:
    return Append(topic, partition, key, value, at)


def turn(appends: list[Append], offsets: dict[tuple[str, int], int], *partitions: int) -> Turn:
    return Turn(appends, offsets, frozenset(partitions))


def read_all(log: Log, topic: str, partition: int = 0, start: int | None = None, timeout: float = 10.0) -> list[Record]:
    """Every record of a partition, by the reader's position reaching the end."""
    low, end = log.bounds(topic, partition)
    reader = log.reader({(topic, partition): low if start is None else start})
    records: list[Record] = []
    deadline = time.monotonic() + timeout
    while reader.position(topic, partition) < end:
        assert time.monotonic() < deadline, (reader.position(topic, partition), end)
        records += reader.poll(timeout=0.1)
    reader.close()
    return records
