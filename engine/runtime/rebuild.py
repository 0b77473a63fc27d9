"""Folding a partition from nothing, stopping exactly where asked: what verification compares a live store with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing

from ..codec.avro import UndecodableRecord
from ..core.evolve import FoldError
from ..core.fold import apply_record
from ..core.merge import Merge, Merged
from ..ports.log import LogDamaged, Reader
from ..ports.store import Put, Store
from ..store.working import WorkingSet, trace_put
from .deployment import Deployment

#: Records folded before they are written as one batch.
_CHUNK = 2000


class Rebuild:
    """Reads a partition's two event topics once, from their beginning. `watch` sees every merged record."""

    def __init__(self, deployment: Deployment, partition: int, store: Store, watch: Callable[[Merged], None]) -> None:
        topics = deployment.topics
        self._deployment = deployment
        self._partition = partition
        self._places = [(topic, partition) for topic in (topics.lifecycle, topics.domain)]
        self._store = store
        self._watch = watch
        self._states = WorkingSet(store)
        self._merge = Merge((topics.lifecycle, topics.domain))
        self._ready: deque[Merged] = deque()
        self._offsets = {place: deployment.log.bounds(*place)[0] for place in self._places}
        self.next_seq = 0
        #: What made folding impossible; reading goes on, so that `watch` sees the rest.
        self.failure: FoldError | None = None
        self._traces: list[Put] = []

    def run(self, stop: int | None, progress: Callable[[int, int], None] | None = None) -> bool:
        """Folds up to event `stop` exclusive (None: to the log's present end); whether it was reached.

        Raises GapInLog, LogDamaged.
        """
        if self.next_seq == stop:
            return True
        with closing(self._merged()) as records:
            for count, merged in enumerate(records, 1):
                self._apply(merged)
                if count % _CHUNK == 0:
                    self._write()
                    if progress is not None:
                        progress(self._partition, self.next_seq)
                if self.next_seq == stop:
                    break
        self._write()
        return stop is None or self.next_seq == stop

    def _merged(self) -> Generator[Merged, None, None]:
        """Records in order, beginning with those that an earlier run has left."""
        while self._ready:
            yield self._ready.popleft()
        ends = {place: self._deployment.log.bounds(*place)[1] for place in self._places}
        if any(self._offsets[place] < end for place, end in ends.items()):
            reader = self._deployment.log.reader(self._offsets)
            try:
                while any(reader.position(*place) < end for place, end in ends.items()):
                    self._read(reader)
                    while self._ready:
                        yield self._ready.popleft()
            finally:
                self._offsets = {place: reader.position(*place) for place in self._places}
                reader.close()
        self._ready.extend(self._merge.finish())
        while self._ready:
            yield self._ready.popleft()

    def _read(self, reader: Reader) -> None:
        for record in reader.poll(_CHUNK, 1.0):
            try:
                decoded = self._deployment.codec.decode(record.value)
            except UndecodableRecord as error:
                place = f"{record.topic} partition {record.partition} offset {record.offset}"
                raise LogDamaged(f"{place} cannot be decoded: {error}") from error
            self._merge.push(record.topic, record.offset, decoded)
        self._ready.extend(self._merge.take())

    def _apply(self, merged: Merged) -> None:
        self._watch(merged)
        record = merged.record
        if merged.stale is not None or record.seq < 0:
            return
        self.next_seq = record.next_seq
        if self.failure is not None:
            return
        try:
            apply_record(self._states, record)
        except FoldError as error:
            self.failure = error
        if record.job_id is not None:
            domain = merged.topic == self._deployment.topics.domain
            self._traces.append(trace_put(record.job_id, record.seq, domain, merged.offset))

    def _write(self) -> None:
        turn, changes = self._states.collect()
        self._store.write([*changes, *self._traces])
        self._states.stored(turn)
        self._traces = []
