"""Reading the past: jobs and aggregates, now or as of a position, with or without a running worker.

A partition is read from its store in the state folder, which another process may be writing; what the log holds beyond
it is folded into memory on top. So answers always reflect the log's end. Without a usable store everything is folded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import NamedTuple

import structlog

from ..core import state as s
from ..core.compensate import SUFFIX, has_compensation
from ..core.global_keys import is_global, record_key, recorded_key
from ..core.partitioner import partition_for
from ..ports.log import Log, Record
from ..ports.store import Family, Put, Store, StoreError, View
from ..store.keys import SEQ_MAX
from ..store.memory import MemoryStore
from ..store.newest import COUNTS, PEERS, POSITIONS, QUEUED, read_aggregate
from ..store.opener import open_reader, open_store
from ..store.overlay import Overlay
from ..store.reader import ReadStore
from .deployment import Deployment
from .pending import Pending, pending_of, read_pending
from .recover import PartitionTopics, StoreAhead, Tail
from .waits import type_waits, waits_for

log = structlog.get_logger(__name__)

#: What a fold goes on from, beside the versioned families that it reads through.
_SEEDS = (POSITIONS, COUNTS, QUEUED, PEERS)
#: Plain families whose keys come and go: the fold looks them up.
_OPEN = (Family.RUNNING, Family.LENT)
#: Records of a job that lie further apart than this are fetched by a reader of their own.
_NEAR = 2000
#: Records that are folded into memory; a longer log without a store is folded into a temporary one on disk.
_MEMORY_RECORDS_MAX = 50_000
#: Called with a partition and the number of events folded so far.
Progress = Callable[[int, int], None]


class NotFound(Exception):
    """There is no such job, aggregate, version or position. Names it and where it was looked for."""


class FoundJob(NamedTuple):
    """A job: where it is, what never changes about it, where it stands, and what it waits for beyond time and room."""

    job_id: str
    partition: int
    head: s.JobHead
    state: s.JobState
    waits: str | None = None


class FoundEffect(NamedTuple):
    """What is known of an effect under its key, and the event that told it.

    `undo`: None without `compensate=`, else `registered` (not told of a global key), or the status of its
    compensation's call.
    """

    key: str
    partition: int
    seq: int
    record: s.Idempotency
    undo: str | None = None


class JobFilter(NamedTuple):
    """Which jobs are listed; None: any. `since` microseconds, of the submission."""

    status: str | None = None
    type: str | None = None
    resource: str | None = None
    since: int | None = None

    def accepts(self, found: FoundJob) -> bool:
        """Whether a job is listed."""
        head = found.head
        return (
            (self.status is None or found.state.status == self.status)
            and (self.type is None or head.type == self.type)
            and (self.resource is None or head.resource == self.resource)
            and (self.since is None or head.submitted_at >= self.since)
        )


class PartitionPast:
    """One partition's state up to its log's end."""

    def __init__(self, deployment: Deployment, partition: int, progress: Progress | None = None) -> None:
        self.partition = partition
        self.topics = PartitionTopics(deployment.topics.lifecycle, deployment.topics.domain, partition)
        self._deployment = deployment
        self._scratch: TemporaryDirectory[str] | None = None
        self._reader: ReadStore | None = None
        self._open()
        self.refresh(progress)

    @property
    def next_seq(self) -> int:
        """The number that the next event will have."""
        return self._tail.positions.seq

    def refresh(self, progress: Progress | None = None) -> None:
        """Folds what the log holds beyond what is known.

        What was folded into memory is dropped for a newer look at the store when it has become much: a client that
        stays open for days takes no more memory than one that was opened just now.
        """
        if not self._behind():
            return
        if self._in_memory > _MEMORY_RECORDS_MAX:
            self.close()
            self._open()
        before = self._records_seen()
        self._tail.catch_up(None if progress is None else lambda events: progress(self.partition, events))
        if self._scratch is None:
            self._in_memory += self._records_seen() - before

    def _behind(self) -> bool:
        bounds, offsets = self._deployment.log.bounds, self._tail.positions.offsets
        topics = (self.topics.lifecycle, self.topics.domain)
        return any(offsets.get(topic, 0) < bounds(topic, self.partition)[1] for topic in topics)

    def _records_seen(self) -> int:
        return sum(self._tail.positions.offsets.values())

    def job(self, job_id: str) -> FoundJob | None:
        """A job of this partition."""
        raw = job_id.encode()
        head = self.store.get(Family.PAYLOADS, raw)
        if head is not None:
            return self._found(job_id, head)
        held = self.store.get(Family.MARKS, s.HELD.encode() + raw)
        return None if held is None else self._held(held)

    def jobs(self) -> Iterator[FoundJob]:
        """All jobs, by id."""
        for raw, head in self.store.scan(Family.PAYLOADS):
            yield self._found(raw.decode(), head)
        for _, value in self.store.scan(Family.MARKS, s.HELD.encode()):
            found = self._held(value)
            if found is not None:
                yield found

    def _held(self, value: bytes) -> FoundJob | None:
        """A submission that waits for a worker which knows its type, as the job that it will be."""
        held = s.decode_held(value)
        pending = pending_of(self._deployment, held.original, self.partition, held.source_offset)
        return None if pending is None else _waiting(pending)._replace(waits=type_waits(self.store, held.type))

    def _found(self, job_id: str, head: bytes) -> FoundJob:
        version = self.store.latest(Family.JOBS, job_id.encode())
        assert version is not None, f"{job_id} has a head and no state"
        about, state = s.decode_head(head), s.decode_job(version.value)
        return FoundJob(job_id, self.partition, about, state, waits_for(self.store, about, state))

    def effect(self, key: str) -> FoundEffect | None:
        """What is known of an effect of this partition; of a global key, what its home has decided."""
        stored = record_key(key) if is_global(key) else key
        version = self.store.latest(Family.IDEMPOTENCY, stored.encode())
        if version is None:
            return None
        record = s.decode_idempotency(version.value)
        undo = "registered" if has_compensation(record) else None
        if undo is not None or is_global(key):
            undone = self.store.latest(Family.IDEMPOTENCY, (stored + SUFFIX).encode())
            undo = undo if undone is None else s.decode_idempotency(undone.value).status
        return FoundEffect(key, self.partition, version.seq, record, undo)

    def effects(self) -> Iterator[FoundEffect]:
        """All effects, by key; those under global keys once, at the home of the key."""
        for raw in self.store.keys(Family.IDEMPOTENCY):
            stored = raw.decode()
            key = recorded_key(stored) if is_global(stored) else stored
            found = None if key is None else self.effect(key)
            if found is not None:
                yield found

    def pointers(self, job_id: str) -> Iterator[tuple[str, int]]:
        """Topic and offset of a job's records, in log order."""
        for _, value in self.store.scan(Family.TRACES, job_id.encode() + b"\0"):
            yield self.topics.domain if value[0] else self.topics.lifecycle, int.from_bytes(value[1:], "big")

    def close(self) -> None:
        """Frees the store's files."""
        self.store.close()
        self._drop_reader()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _open(self) -> None:
        self._reader = self._open_reader()
        self._in_memory = 0
        try:
            self._begin()
        except StoreAhead as error:
            self._warn(error)
            self._drop_reader()
            self._begin()

    def _begin(self) -> None:
        if self._reader is not None:
            self.store: Store = Overlay(MemoryStore(), self._reader, SEQ_MAX, _new_layer)
            _seed(self.store, self._reader)
        else:
            self.store = self._empty_store()
        deployment = self._deployment
        self._tail = Tail(deployment.log, deployment.codec, self.topics, self.store)

    def _empty_store(self) -> Store:
        bounds = self._deployment.log.bounds
        ends = [bounds(topic, self.partition) for topic in (self.topics.lifecycle, self.topics.domain)]
        if sum(end - low for low, end in ends) <= _MEMORY_RECORDS_MAX:
            return MemoryStore()
        self._scratch = TemporaryDirectory(prefix="rewindq-past-")
        return open_store(str(Path(self._scratch.name) / "store"), branch="", partition=self.partition)

    def _open_reader(self) -> ReadStore | None:
        path = self._deployment.store_path(self.partition)
        if not path.exists():
            return None
        try:
            return open_reader(str(path))
        except StoreError as error:
            self._warn(error)
            return None

    def _warn(self, error: Exception) -> None:
        log.warning("store not used; folding the log from its beginning", partition=self.partition, reason=str(error))

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _new_layer(path: str, seq: int) -> MemoryStore:
    return MemoryStore(path)


def _seed(store: Store, base: View) -> None:
    """What an overlay does not read through, but a fold goes on from."""
    found = [(key, base.get(Family.META, key)) for key in _SEEDS]
    changes = [Put(Family.META, key, value) for key, value in found if value is not None]
    changes.extend(Put(family, key, value) for family in _OPEN for key, value in base.scan(family))
    store.write(changes)


class Past:
    """All partitions' past, each opened when it is first asked. Close it, or use it as a context manager."""

    def __init__(self, deployment: Deployment, progress: Progress | None = None) -> None:
        self.deployment = deployment
        self._progress = progress
        self._opened: dict[int, PartitionPast] = {}

    def partition(self, number: int) -> PartitionPast:
        """One partition's past."""
        if number not in self._opened:
            self._opened[number] = PartitionPast(self.deployment, number, self._progress)
        return self._opened[number]

    def home(self, key: str) -> PartitionPast:
        """The partition that a resource or aggregate key is at home on."""
        return self.partition(partition_for(key.encode(), self.deployment.partitions))

    def refresh(self) -> None:
        """Catches up with the log."""
        for past in self._opened.values():
            past.refresh()

    def find(self, job_id: str) -> FoundJob:
        """A job, its submission being accepted or still waiting on the jobs topic. Raises NotFound."""
        found = self.accepted(job_id)
        if found is not None:
            return found
        # Read before looking again: what was taken in meanwhile is found there, and never in neither place.
        pending = read_pending(self.deployment, job_id)
        self.refresh()
        found = self.accepted(job_id)
        if found is not None:
            return found
        if pending:
            return _waiting(pending[0])
        settings = self.deployment.settings
        raise NotFound(
            f"no job {job_id!r} in namespace {settings.namespace!r} on {self.deployment.log.url}: "
            "`rewindq jobs list` shows what there is"
        )

    def accepted(self, job_id: str) -> FoundJob | None:
        """A job that some partition has accepted."""
        count = self.deployment.partitions
        likely = partition_for(job_id.encode(), count)
        # What is open already costs nothing to ask.
        order = sorted(range(count), key=lambda number: (number not in self._opened, number != likely))
        return next((found for number in order if (found := self.partition(number).job(job_id)) is not None), None)

    def jobs(self, wanted: JobFilter, limit: int | None = None) -> tuple[list[FoundJob], int]:
        """The newest `limit` of the jobs that the filter accepts, newest first, and how many it accepts."""
        count = 0

        def accepted() -> Iterator[tuple[int, str, FoundJob]]:
            nonlocal count
            for found in self._all_jobs():
                if wanted.accepts(found):
                    count += 1
                    yield found.head.submitted_at, found.job_id, found

        if limit is None:
            chosen = sorted(accepted(), key=lambda entry: entry[:2], reverse=True)
        else:
            chosen = heapq.nlargest(limit, accepted(), key=lambda entry: entry[:2])
        return [found for *_, found in chosen], count

    def _all_jobs(self) -> Iterator[FoundJob]:
        pending = {one.job_id: one for one in read_pending(self.deployment)}
        for number in range(self.deployment.partitions):
            for found in self.partition(number).jobs():
                pending.pop(found.job_id, None)
                yield found
        yield from map(_waiting, pending.values())

    def aggregate(self, key: str, seq: int | None = None) -> s.Aggregate:
        """An aggregate as of event `seq` of its home partition (None: now); version 0 where it did not exist."""
        return read_aggregate(self.home(key).store, key, seq)

    def versions(self, key: str) -> Iterator[tuple[int, s.AggregateVersion]]:
        """An aggregate's stored versions with the positions that wrote them, oldest first."""
        for version in self.home(key).store.history(Family.AGGREGATES, key.encode()):
            yield version.seq, s.decode_version(version.value)

    def close(self) -> None:
        """Frees all stores."""
        for past in self._opened.values():
            past.close()
        self._opened = {}

    def __enter__(self) -> Past:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _waiting(pending: Pending) -> FoundJob:
    """A submission that no worker has taken in yet, as the job that it will be."""
    body = pending.body
    head = s.JobHead(
        body.type,
        pending.key,
        None,
        body.priority,
        pending.submitted_at,
        0,
        body.digest,
        body.payload,
        body.payload_ref,
        pending.trace_id,
        parent=body.parent,
        source_offset=pending.offset,
    )
    state = s.JobState(s.WAITING if body.due is None else s.DELAYED, due=body.due)
    return FoundJob(pending.job_id, pending.partition, head, state)


def read_at(log: Log, partition: int, places: Sequence[tuple[str, int]]) -> Iterator[Record]:
    """The records at these (topic, offset), topic by topic; those that are no longer there are passed over."""
    for topic in sorted({topic for topic, _ in places}):
        low, end = log.bounds(topic, partition)
        offsets = sorted(offset for place, offset in places if place == topic and low <= offset < end)
        while offsets:
            run = [offset for offset in offsets if offset - offsets[0] < _NEAR]
            offsets = offsets[len(run) :]
            yield from _read_run(log, topic, partition, run)


def _read_run(log: Log, topic: str, partition: int, offsets: list[int]) -> Iterator[Record]:
    wanted = frozenset(offsets)
    reader = log.reader({(topic, partition): offsets[0]})
    try:
        while reader.position(topic, partition) <= offsets[-1]:
            limit = offsets[-1] - reader.position(topic, partition) + 1
            yield from (record for record in reader.poll(limit, 1.0) if record.offset in wanted)
    finally:
        reader.close()
