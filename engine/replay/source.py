"""The past of a job, for the process that may read log and store: its records, its partition's state, its blobs."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ..codec.avro import UndecodableRecord
from ..core import state as s
from ..core.events import EventRecord
from ..core.partitioner import partition_for
from ..ports.log import Log, Record
from ..ports.store import Family, Put, Store, View
from ..runtime.deployment import Deployment
from ..runtime.recover import PartitionTopics, Tail
from ..store.keys import SEQ_MAX
from ..store.memory import MemoryStore
from ..store.opener import open_reader
from ..store.overlay import Overlay
from ..store.working import COUNTS, POSITIONS
from .recording import NoRecording, Recording

#: Records of a job that lie further apart than this are fetched one by one.
_NEAR = 2000
#: What a fold goes on from, beside the versioned families that it reads through.
_SEEDS = (POSITIONS, COUNTS)


class PartitionPast:
    """One partition's state up to its log's end: the store in the state folder, and in memory what lies beyond it."""

    def __init__(self, deployment: Deployment, partition: int) -> None:
        self.partition = partition
        self.topics = PartitionTopics(deployment.topics.lifecycle, deployment.topics.domain, partition)
        path = deployment.store_path(partition)
        self._reader = open_reader(str(path)) if path.exists() else None
        self.store: Store = MemoryStore()
        if self._reader is not None:
            self.store = Overlay(MemoryStore(), self._reader, SEQ_MAX, _new_layer)
            _seed(self.store, self._reader)
        try:
            self._tail = Tail(deployment.log, deployment.codec, self.topics, self.store)
            self._tail.catch_up()
        except BaseException:
            self.close()
            raise

    @property
    def seq(self) -> int:
        """The next event's number."""
        return self._tail.positions.seq

    def head(self, job_id: str) -> s.JobHead | None:
        """What never changes about a job of this partition."""
        data = self.store.get(Family.PAYLOADS, job_id.encode())
        return None if data is None else s.decode_head(data)

    def pointers(self, job_id: str) -> Iterator[tuple[str, int]]:
        """Topic and offset of a job's records, in log order."""
        for _, value in self.store.scan(Family.TRACES, job_id.encode() + b"\0"):
            topic = self.topics.domain if value[0] else self.topics.lifecycle
            yield topic, int.from_bytes(value[1:], "big")

    def close(self) -> None:
        """Frees the store's files."""
        self.store.close()
        if self._reader is not None:
            self._reader.close()


def _new_layer(path: str, seq: int) -> MemoryStore:
    return MemoryStore(path)


def _seed(store: Store, base: View) -> None:
    """What an overlay does not read through, but a fold goes on from."""
    found = [(key, base.get(Family.META, key)) for key in _SEEDS]
    changes = [Put(Family.META, key, value) for key, value in found if value is not None]
    changes.extend(Put(Family.RUNNING, key, value) for key, value in base.scan(Family.RUNNING))
    store.write(changes)


class JobPast:
    """A job with its recording and its partition's past. Close it, or use it as a context manager."""

    def __init__(self, past: PartitionPast, head: s.JobHead, recording: Recording) -> None:
        self.past = past
        self.head = head
        self.recording = recording

    def close(self) -> None:
        """Frees the store's files."""
        self.past.close()

    def __enter__(self) -> JobPast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_job(deployment: Deployment, job_id: str) -> JobPast:
    """Finds a job and reads its recording. Raises NoRecording, StoreAhead, LogDamaged."""
    first = partition_for(job_id.encode(), deployment.partitions)
    for partition in sorted(range(deployment.partitions), key=lambda number: number != first):
        past = PartitionPast(deployment, partition)
        head = past.head(job_id)
        if head is not None:
            return JobPast(past, head, _recording(deployment, past, job_id))
        past.close()
    raise NoRecording(f"no job {job_id!r} in namespace {deployment.settings.namespace!r} on {deployment.log.url}")


def _recording(deployment: Deployment, past: PartitionPast, job_id: str) -> Recording:
    records: list[EventRecord] = []
    damaged = None
    for record in read_at(deployment.log, past.partition, list(past.pointers(job_id))):
        try:
            records.append(deployment.codec.decode(record.value))
        except UndecodableRecord as error:
            damaged = f"{record.topic} partition {record.partition} offset {record.offset}: {error}"
            break
    records.sort(key=lambda one: one.seq)
    return Recording.of(job_id, past.partition, records, damaged)


def read_at(log: Log, partition: int, places: list[tuple[str, int]]) -> Iterator[Record]:
    """The records at these (topic, offset), topic by topic."""
    for topic in sorted({topic for topic, _ in places}):
        offsets = sorted(offset for place, offset in places if place == topic)
        while offsets:
            run = [offset for offset in offsets if offset - offsets[0] < _NEAR]
            offsets = offsets[len(run) :]
            yield from _read_run(log, topic, partition, run)


def _read_run(log: Log, topic: str, partition: int, offsets: list[int]) -> Iterator[Record]:
    wanted = frozenset(offsets)
    end = log.bounds(topic, partition)[1]
    reader = log.reader({(topic, partition): offsets[0]})
    try:
        while reader.position(topic, partition) <= min(offsets[-1], end - 1):
            yield from (record for record in reader.poll(_NEAR, 1.0) if record.offset in wanted)
    finally:
        reader.close()
