"""The memory log and the embedded log answer the same to the same calls."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support.logs import Worker, join, turn

from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import Append, Log, LogError, Reader, TopicSpec

TOPICS = st.sampled_from(["a", "b"])
PARTITIONS = st.integers(0, 1)
BLOBS = st.none() | st.binary(max_size=12)
APPENDS = st.lists(st.builds(Append, TOPICS, PARTITIONS, BLOBS, BLOBS, st.integers(0, 50), st.just(())), max_size=6)
OFFSETS = st.dictionaries(st.tuples(TOPICS, PARTITIONS), st.integers(0, 20), max_size=2)


class Agreement(RuleBasedStateMachine):
    """Every rule calls both logs and compares what they return or raise."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp())
        self._logs: list[Log] = [MemoryLog(), SqliteLog(self._folder / "log.db")]
        self._readers: list[Reader] = []
        self._workers: list[Worker] = []

    def teardown(self) -> None:
        for log in self._logs:
            log.close()
        shutil.rmtree(self._folder)

    def _same(self, answers: list[object]) -> object:
        assert answers[0] == answers[1]
        return answers[0]

    def _call(self, name: str, *arguments: object) -> object:
        answers: list[object] = []
        for log in self._logs:
            try:
                answers.append(getattr(log, name)(*arguments))
            except LogError as error:
                answers.append(type(error))
        return self._same(answers)

    @initialize()
    def begin(self) -> None:
        self._call("create_topics", [TopicSpec("a", 2), TopicSpec("b", 2, retention_ms=10)])

    @rule(appends=APPENDS)
    def append(self, appends: list[Append]) -> None:
        answers: list[object] = []
        for log in self._logs:
            try:
                answers.append(log.producer().append(appends))
            except LogError as error:
                answers.append(type(error))
        self._same(answers)

    @rule(topic=TOPICS, partition=PARTITIONS, at=st.integers(0, 60))
    def look(self, topic: str, partition: int, at: int) -> None:
        self._call("bounds", topic, partition)
        self._call("offset_at", topic, partition, at)
        self._call("topics", topic)
        for log in self._logs:
            assert log.topics("") is not None

    @rule(positions=st.dictionaries(st.tuples(TOPICS, PARTITIONS), st.integers(0, 8), min_size=1))
    def open_readers(self, positions: dict[tuple[str, int], int]) -> None:
        readers: list[object] = []
        for log in self._logs:
            try:
                readers.append(log.reader(positions))
            except LogError as error:
                readers.append(type(error))
        if isinstance(readers[0], type):
            self._same(readers)
            self._readers = []
        else:
            self._readers = readers  # type: ignore[assignment]

    @rule()
    def read_to_the_end(self) -> None:
        answers: list[object] = []
        for reader in self._readers:
            records = []
            try:
                while some := reader.poll(limit=3):
                    records += some
            except LogError as error:
                answers.append(type(error))
            else:
                answers.append(sorted(records))
        if answers:
            self._same(answers)
            if isinstance(answers[0], type):
                self._readers = []

    @rule(topic=TOPICS)
    def make_anew(self, topic: str) -> None:
        self._call("delete_topics", [topic])
        self._call("create_topics", [TopicSpec(topic, 2)])
        self._call("create_topics", [TopicSpec(topic, 3)])

    @rule(offsets=OFFSETS)
    def set_offsets(self, offsets: dict[tuple[str, int], int]) -> None:
        self._call("set_offsets", "g", offsets)
        self._compare_groups()

    @rule()
    def delete_group(self) -> None:
        self._call("delete_group", "g")
        self._compare_groups()

    @rule()
    def join_or_leave(self) -> None:
        if self._workers:
            for worker in self._workers:
                worker.member.close()
            self._workers = []
        else:
            self._workers = [join(log, "g", ["a"]) for log in self._logs]
            for worker in self._workers:
                worker.poll(0)
            assert self._workers[0].owner.told == self._workers[1].owner.told
        self._compare_groups()

    @rule(appends=APPENDS, offsets=OFFSETS, partitions=st.sets(st.integers(0, 2), max_size=2))
    def commit(self, appends: list[Append], offsets: dict[tuple[str, int], int], partitions: set[int]) -> None:
        answers: list[object] = []
        for worker in self._workers:
            try:
                answers.append(worker.member.commit(turn(appends, offsets, *partitions)))
            except LogError as error:
                answers.append(type(error))
        if answers:
            self._same(answers)
        self._compare_groups()

    def _compare_groups(self) -> None:
        groups = [[(one.name, one.offsets, len(one.members)) for one in log.groups("")] for log in self._logs]
        assert groups[0] == groups[1]


Agreement.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_agreement = Agreement.TestCase
