"""A partition's lifecycle and domain topics as writers of several epochs leave them, and what a reader must make of it.

Writers here are as bad as a log without any fencing would let them be: they append behind a newer fence, only part of
a transaction arrives, two take the same epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rewindq.engine.core.events import UNNUMBERED, Event, EventRecord, NoteRecorded, PartitionTaken
from rewindq.engine.core.merge import Merge, Merged

L, D = "lifecycle", "domain"
TOPICS = (L, D)


def fence(epoch: int, worker: str = "") -> EventRecord:
    """A writer's fence."""
    taken = Event(PartitionTaken("host", 1))
    return EventRecord(UNNUMBERED, 0, 0, epoch, worker or f"w{epoch}", None, 0, (taken,))


def numbered(seq: int, epoch: int, count: int = 1, worker: str = "") -> EventRecord:
    """A record of `count` events."""
    events = tuple(Event(NoteRecorded(f"[{seq + n},{epoch}]".encode())) for n in range(count))
    return EventRecord(seq, seq, 0, epoch, worker or f"w{epoch}", "job", 1, events)


class Part(NamedTuple):
    """A transaction's record: its topic and how many events it holds."""

    topic: str
    count: int


class Writer:
    """Appends for one epoch, numbering from where it took over."""

    def __init__(self, epoch: int, worker: str, seq: int) -> None:
        self.epoch, self.worker, self.seq = epoch, worker, seq

    def transaction(self, parts: Iterable[Part]) -> list[tuple[str, EventRecord]]:
        """The next records, in order of their numbers."""
        made = []
        for topic, count in parts:
            made.append((topic, numbered(self.seq, self.epoch, count, self.worker)))
            self.seq += count
        return made


class Partition:
    """Both topics; offsets have gaps, as markers leave them."""

    def __init__(self) -> None:
        self.topics: dict[str, list[EventRecord]] = {L: [], D: []}

    def append(self, topic: str, record: EventRecord) -> None:
        self.topics[topic].append(record)

    def records(self, topic: str) -> list[tuple[int, EventRecord]]:
        return [(2 * at, record) for at, record in enumerate(self.topics[topic])]

    def expected(self) -> list[EventRecord]:
        """What a reader applies, said another way than `Merge` does it.

        A record counts when its writer's fence was the newest in its topic as it was appended. Of those, each epoch's
        are taken in order of their numbers, as long as there is no gap.
        """
        counting = [record for topic in TOPICS for record in self._unfenced(topic)]
        applied: list[EventRecord] = []
        seq = 0
        for record in sorted(counting, key=lambda record: (record.epoch, record.seq)):
            if record.seq == seq:
                applied.append(record)
                seq = record.next_seq
        return applied

    def _unfenced(self, topic: str) -> list[EventRecord]:
        newest = (0, "")
        found = []
        for record in self.topics[topic]:
            if record.seq == UNNUMBERED:
                if record.epoch > newest[0]:
                    newest = (record.epoch, record.worker_id)
            elif (record.epoch, record.worker_id) == newest:
                found.append(record)
        return found


class Polling:
    """Reads a partition through a `Merge`, one record of one topic at a time."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.read = {L: 0, D: 0}
        self.merge = Merge(TOPICS)
        self.merged: list[Merged] = []

    def poll(self, topic: str) -> bool:
        """Pushes the topic's next record; False at its end."""
        records = self._partition.records(topic)
        if self.read[topic] >= len(records):
            return False
        self.merge.push(topic, *records[self.read[topic]])
        self.read[topic] += 1
        return True

    def take(self) -> None:
        """Takes what has its turn."""
        self.merged.extend(self.merge.take())

    def restart(self) -> None:
        """Goes on in another reader, from the positions that this one would store."""
        self.take()
        position = {topic: 2 * self.read[topic] for topic in TOPICS}
        resumed = {topic: self.merge.resume_at(topic, position[topic]) for topic in TOPICS}
        self.merge = Merge(TOPICS, self.merge.expected, self.merge.fences, self.merge.applied_epoch)
        self.read = {topic: resumed[topic] // 2 for topic in TOPICS}

    def finish(self) -> list[EventRecord]:
        """Reads all that is left; returns the records to be applied, in order."""
        for topic in TOPICS:
            while self.poll(topic):
                pass
        self.merged.extend(self.merge.finish())
        return [item.record for item in self.merged if item.stale is None and item.record.seq != UNNUMBERED]
