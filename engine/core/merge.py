"""Puts the records of a partition's lifecycle and domain topics into their one order, and keeps stale writers out.

A partition's owner numbers its events gap-free across both topics. Taking a partition over appends a fence
(`PartitionTaken`) to each topic. What counts is physical order within a topic: behind a fence, records of an older
epoch are stale. So a late append of a frozen or cut-off owner changes nothing, on whatever log, whether or not the
log's own fencing held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from .events import UNNUMBERED, EventRecord, PartitionTaken


class GapInLog(Exception):
    """Numbered events are missing: the log lost records, or was cut. Names the expected and the found number."""


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """Who may write a topic: the newest epoch's winner. `offset` and `stalled` are those of `PartitionTaken`."""

    epoch: int = 0
    worker_id: str = ""
    offset: int = -1
    stalled: int = 0


class Merged(NamedTuple):
    """A record in order. `stale` records are not to be applied; the reason is for people."""

    topic: str
    offset: int
    record: EventRecord
    stale: str | None = None


class Merge:
    """Merges two topics' records by number. Push records in offset order, take them in event order."""

    def __init__(
        self,
        topics: tuple[str, str],
        expected: int = 0,
        fences: dict[str, Fence] | None = None,
        applied_epoch: int = 0,
    ) -> None:
        self.expected = expected
        self.applied_epoch = applied_epoch
        self.fences: dict[str, Fence] = dict(fences) if fences else {topic: Fence() for topic in topics}
        #: The newest epoch that a fence has shown.
        self.epoch = max(fence.epoch for fence in self.fences.values())
        self._queues: dict[str, deque[tuple[int, EventRecord]]] = {topic: deque() for topic in topics}

    def resume_at(self, topic: str, position: int) -> int:
        """Where a later merge has to read a topic from: at its first waiting record, else at the reader's position."""
        queue = self._queues[topic]
        return queue[0][0] if queue else position

    def push(self, topic: str, offset: int, record: EventRecord) -> None:
        """Offers the next record of a topic."""
        self._queues[topic].append((offset, record))

    def take(self) -> Iterator[Merged]:
        """All records whose turn has come. Fences come as records with no number."""
        progress = True
        while progress:
            progress = False
            for topic, queue in self._queues.items():
                while queue and (merged := self._next(topic, *queue[0])) is not None:
                    queue.popleft()
                    progress = True
                    yield merged

    def finish(self) -> Iterator[Merged]:
        """As `take`; call when both topics were read to ends that were looked up after all that was pushed.

        Raises GapInLog when a record still waits for its predecessor.
        """
        yield from self.take()
        for topic, queue in self._queues.items():
            if queue:
                offset, record = queue[0]
                raise GapInLog(
                    f"{topic} offset {offset} begins with event {record.seq}, but event {self.expected} is missing"
                )

    def _next(self, topic: str, offset: int, record: EventRecord) -> Merged | None:
        fence = self.fences[topic]
        current = record.epoch == fence.epoch == self.applied_epoch and record.worker_id == fence.worker_id
        if current and record.seq == self.expected:
            # Nearly all records are this owner's next one.
            self.expected = record.next_seq
            return Merged(topic, offset, record)
        taken = record.events[0].body if record.seq == UNNUMBERED and record.events else None
        if isinstance(taken, PartitionTaken):
            if record.epoch <= fence.epoch:
                return Merged(topic, offset, record, f"epoch {record.epoch} was taken by {fence.worker_id} before")
            self.fences[topic] = Fence(record.epoch, record.worker_id, taken.offset, taken.stalled)
            self.epoch = max(self.epoch, record.epoch)
            return Merged(topic, offset, record)
        if record.epoch < fence.epoch or record.worker_id != fence.worker_id:
            return Merged(topic, offset, record, f"epoch {record.epoch} ended with {fence.worker_id}'s {fence.epoch}")
        if record.epoch < self.applied_epoch:
            return Merged(topic, offset, record, f"torn: epoch {self.applied_epoch} has numbered events already")
        if record.seq == self.expected:
            self.expected = record.next_seq
            self.applied_epoch = record.epoch
            return Merged(topic, offset, record)
        if record.seq < self.expected:
            return Merged(topic, offset, record, f"event {record.seq} was appended before")
        if record.epoch < self.epoch:
            # The other topic is past its fence, so what should stand before this record will never come.
            return Merged(topic, offset, record, f"torn: its epoch {record.epoch} ended before {self.expected}")
        return None
