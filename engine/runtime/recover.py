"""Folding a partition's committed events into a store: recovery of a worker, rebuilds, branches, checks.

Reading goes on until the reader's position reaches the log's end, so transaction markers, empty partitions and a low
watermark above the checkpoint end it just as records do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..codec.avro import Codec, UndecodableRecord
from ..core.events import EventRecord
from ..core.fold import apply_record
from ..core.merge import GapInLog, Merge, Merged
from ..core.state import STATE_FORMAT
from ..ports.log import Log, LogDamaged, Reader
from ..ports.store import Family, Put, Store
from ..store.newest import POSITIONS, Positions, encode_positions, read_positions
from ..store.working import WorkingSet, trace_put

#: Records folded before they are written as one batch.
CHUNK = 2000
#: Between a log's identity and its topics' ids.
_TOPICS = "/"


class StoreAhead(Exception):
    """The store reflects more than its log holds: another log, or one that lost records. It is refused."""


class StoreStale(StoreAhead):
    """The store tells nothing of this log: an older version wrote it, or topics were made anew since. To be rebuilt."""


class PartitionTopics(NamedTuple):
    """The two topics that hold a partition's events, and which partition of them."""

    lifecycle: str
    domain: str
    partition: int


class Tail:
    """Folds what the log holds beyond a store's positions. Not thread-safe.

    `watch` is called with each merged record, stale ones included, before it is applied.
    """

    def __init__(
        self,
        log: Log,
        codec: Codec,
        source: PartitionTopics,
        store: Store,
        watch: Callable[[Merged], None] | None = None,
    ) -> None:
        self._log = log
        self._codec = codec
        self._source = source
        self._store = store
        self._watch = watch
        self.positions = check_positions(log, source, store)
        self.states = WorkingSet(store)
        self.merge = Merge(
            (source.lifecycle, source.domain),
            self.positions.seq,
            self.positions.fences or None,
            self.positions.applied_epoch,
        )
        self.stale: list[Merged] = []

    def catch_up(self, progress: Callable[[int], None] | None = None) -> int:
        """Folds to the log's present end; returns the number of events applied. Raises GapInLog, LogDamaged."""
        ends = self._ends()
        reader = self._log.reader({place: self.positions.offsets.get(place[0], 0) for place in ends})
        events = 0
        try:
            while True:
                while any(reader.position(*place) < end for place, end in ends.items()):
                    for record in reader.poll(CHUNK, 1.0):
                        decoded = self._decode(record.topic, record.offset, record.value)
                        self.merge.push(record.topic, record.offset, decoded)
                    events += self._apply_all(self.merge.take(), reader)
                    if progress is not None:
                        progress(events)
                try:
                    return events + self._apply_all(self.merge.finish(), reader)
                except GapInLog:
                    # A commit that came between the looks at the two topics is whole in their ends of now.
                    before, ends = ends, self._ends()
                    if ends == before:
                        raise
        finally:
            reader.close()

    def _ends(self) -> dict[tuple[str, int], int]:
        source = self._source
        places = [(source.lifecycle, source.partition), (source.domain, source.partition)]
        return {place: self._log.bounds(*place)[1] for place in places}

    def _apply_all(self, merging: Iterator[Merged], reader: Reader) -> int:
        merged = list(merging)
        self._read_to(reader)
        return self._apply(merged)

    def _read_to(self, reader: Reader) -> None:
        for topic in (self._source.lifecycle, self._source.domain):
            position = reader.position(topic, self._source.partition)
            self.positions.offsets[topic] = self.merge.resume_at(topic, position)

    def _decode(self, topic: str, offset: int, value: bytes | None) -> EventRecord:
        try:
            return self._codec.decode(value)
        except UndecodableRecord as error:
            raise LogDamaged(
                f"{topic} partition {self._source.partition} offset {offset} cannot be decoded: {error}"
            ) from error

    def _apply(self, merged: list[Merged]) -> int:
        events = 0
        traces: list[Put] = []
        for item in merged:
            if self._watch is not None:
                self._watch(item)
            if item.stale is not None:
                self.stale.append(item)
                continue
            record = item.record
            if record.seq < 0:
                continue
            apply_record(self.states, record)
            events += len(record.events)
            self.positions.lamport = max(self.positions.lamport, record.lamport + len(record.events))
            if record.job_id is not None:
                domain = item.topic == self._source.domain
                traces.append(trace_put(record.job_id, record.seq, domain, item.offset))
        self._write(traces)
        return events

    def _write(self, traces: list[Put]) -> None:
        turn, changes = self.states.collect()
        self.positions.seq = self.merge.expected
        self.positions.fences = dict(self.merge.fences)
        self.positions.applied_epoch = self.merge.applied_epoch
        self._store.write([*changes, *traces, Put(Family.META, POSITIONS, encode_positions(self.positions))])
        self.states.stored(turn)


def log_identity(log: Log, source: PartitionTopics) -> str:
    """What a store is of: the log, and the very topics. Raises NoSuchTopic."""
    topics = (source.lifecycle, source.domain)
    ids = log.topic_ids(topics)
    return log.identity() + _TOPICS + ",".join(ids[topic] for topic in topics)


def check_positions(log: Log, source: PartitionTopics, store: Store) -> Positions:
    """The store's positions, held against the log. Raises StoreStale, StoreAhead naming both."""
    positions = read_positions(store)
    identity = log_identity(log, source)
    if positions is None:
        return Positions(offsets={}, fences={}, log_identity=identity)
    if positions.log_identity != identity:
        made = positions.log_identity.partition(_TOPICS)[0]
        if made != log.identity():
            raise StoreAhead(f"the store was made from log {made}, this is log {log.identity()}")
        raise StoreStale(f"the store was made before {source.lifecycle} or {source.domain} was made anew")
    if positions.state_format < STATE_FORMAT:
        raise StoreStale(f"the store has state format {positions.state_format}, this version writes {STATE_FORMAT}")
    if positions.state_format != STATE_FORMAT:
        raise StoreAhead(f"the store has state format {positions.state_format}, this version writes {STATE_FORMAT}")
    for topic in (source.lifecycle, source.domain):
        reflected = positions.offsets.get(topic, 0)
        _, end = log.bounds(topic, source.partition)
        if reflected > end:
            raise StoreAhead(
                f"the store reflects {topic} partition {source.partition} up to offset {reflected}, "
                f"but the log ends at {end}"
            )
    return positions
