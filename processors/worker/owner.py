"""One owned partition: numbers events, folds them at once, and gathers them into the next turn's commit.

What is decided is visible to later decisions of the same partition immediately, but to nobody else before the log has
committed it: turns commit in order, so whatever was built on an uncommitted decision falls with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core.events import UNNUMBERED, Event, EventRecord, PartitionTaken
from rewindq.engine.core.fold import apply_record
from rewindq.engine.core.names import Topics
from rewindq.engine.core.state import JobHead
from rewindq.engine.ports.clock import Clock
from rewindq.engine.ports.log import Append
from rewindq.engine.ports.store import Delete, Family, Put, Store
from rewindq.engine.store.newest import POSITIONS, Positions, encode_positions
from rewindq.engine.store.working import WorkingSet, trace_put


class About(msgspec.Struct, frozen=True, gc=False):
    """Whom a record is about."""

    job_id: str | None
    attempt: int
    key: bytes
    resource: str | None = None
    trace_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None

    @classmethod
    def job(cls, job_id: str, head: JobHead, attempt: int, partition: int, last_seq: int) -> About:
        """A job of a partition; `last_seq` is the event that led to what comes."""
        return cls(
            job_id,
            attempt,
            head.key.encode(),
            head.resource,
            head.trace_id,
            head.correlation_id,
            f"p{partition}@{last_seq}",
        )

    @classmethod
    def asking(cls, record: EventRecord, key: bytes) -> About:
        """The job of another partition that a record is about; the cause is its own event there."""
        trace = (record.trace_id, record.correlation_id, record.causation_id)
        return cls(record.job_id, record.attempt, key, None, *trace)


class Taken(NamedTuple):
    """What became of an input record: the job whose state changed, if any."""

    job_id: str | None
    events: tuple[Event, ...]


class _Trace(msgspec.Struct, frozen=True, gc=False):
    job_id: str
    seq: int
    domain: bool
    append: int


class ClosedTurn(NamedTuple):
    """A turn on its way: what the log gets, what the store gets after it, who waits for it."""

    owner: Owner
    number: int
    appends: list[Append]
    traces: list[_Trace]
    changes: list[Put | Delete]
    positions: Positions
    waiters: list[asyncio.Future[None]]

    def store(self, offsets: Sequence[int]) -> None:
        """Writes the turn into the store, given the offsets of its appends."""
        positions = self.positions
        for append, offset in zip(self.appends, offsets, strict=True):
            if append.topic in self.owner.event_topics:
                positions.offsets[append.topic] = max(positions.offsets[append.topic], offset + 1)
        batch = self.changes
        batch.extend(trace_put(t.job_id, t.seq, t.domain, offsets[t.append]) for t in self.traces)
        batch.append(Put(Family.META, POSITIONS, encode_positions(positions)))
        self.owner.store.write(batch)


class Owner:
    """An owned partition. Used from the worker's event loop only, except for `ClosedTurn.store`."""

    def __init__(
        self,
        partition: int,
        topics: Topics,
        store: Store,
        states: WorkingSet,
        positions: Positions,
        *,
        epoch: int,
        worker_id: str,
        code_version: str,
        codec: Codec,
        clock: Clock,
    ) -> None:
        self.partition = partition
        self.store = store
        self.states = states
        self.epoch = epoch
        self.seq = positions.seq
        self.lamport = positions.lamport
        self.inputs: dict[str, int] = {t: positions.offsets.get(t, 0) for t in (topics.jobs, topics.commands)}
        self._topics = topics
        self._positions = positions
        self._worker_id = worker_id
        self._code_version = code_version
        self._encode = codec.encode
        self._clock = clock
        self._by_name = {"lifecycle": topics.lifecycle, "domain": topics.domain}
        #: Submissions that kill whoever reads them, by offset, with the reason to park them.
        self.killers: dict[int, str] = {}
        self.event_topics = frozenset(self._by_name.values())
        #: Bytes of the records that the open turn holds.
        self.open_bytes = 0
        self._appends: list[Append] = []
        self._traces: list[_Trace] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._moved = False

    def append(self, about: About, events: Iterable[Event]) -> int:
        """Decides: numbers the events, folds them, and adds them to the turn. Returns the number behind the last.

        Consecutive events of one topic become one record.
        """
        group: list[Event] = []
        for event in events:
            if group and group[0].body.topic != event.body.topic:
                self._append_group(about, tuple(group))
                group = []
            group.append(event)
        if group:
            self._append_group(about, tuple(group))
        return self.seq

    def _append_group(self, about: About, events: tuple[Event, ...]) -> None:
        record = self._record(self.seq, self.lamport + 1, about, events)
        # Encoded first: what cannot be written must not take numbers, or the log would have a gap for ever.
        data = self._encode(record)
        apply_record(self.states, record)
        topic = events[0].body.topic
        if about.job_id is not None:
            self._traces.append(_Trace(about.job_id, self.seq, topic == "domain", len(self._appends)))
        self.seq += len(events)
        self.lamport += len(events)
        self.open_bytes += len(data)
        self._appends.append(Append(self._by_name[topic], self.partition, about.key, data, record.timestamp // 1000))

    def _record(self, seq: int, lamport: int, about: About, events: tuple[Event, ...]) -> EventRecord:
        return EventRecord(
            seq,
            lamport,
            self._clock.now_us(),
            self.epoch,
            self._worker_id,
            about.job_id,
            about.attempt,
            events,
            about.resource,
            about.trace_id,
            None,
            about.causation_id,
            about.correlation_id,
            self._code_version,
        )

    def heard(self, lamport: int) -> None:
        """What comes next happens after an event of another partition."""
        self.lamport = max(self.lamport, lamport)

    def add(self, append: Append) -> None:
        """Adds a record for another topic (a child job, a forwarded submission, an investigation entry)."""
        self._appends.append(append)
        self.open_bytes += len(append.value or b"")

    def unnumbered(self, topic: str, partition: int, about: About, event: Event) -> None:
        """Appends an input record (a submission or command) with the turn."""
        self.add(self.input_record(topic, partition, about, event))

    def answer(self, topic: str, partition: int, about: About, event: Event) -> None:
        """Appends an input record for another partition's job with the turn, caused by what was decided last."""
        cause = f"p{self.partition}@{self.seq - 1}" if self.seq else None
        self.unnumbered(topic, partition, msgspec.structs.replace(about, resource=None, causation_id=cause), event)

    def input_record(self, topic: str, partition: int, about: About, event: Event) -> Append:
        """An input record by this owner, for whoever appends it."""
        record = self._record(UNNUMBERED, self.lamport, about, (event,))
        return Append(topic, partition, about.key, self._encode(record), record.timestamp // 1000)

    def read(self, topic: str, next_offset: int) -> None:
        """An input record was taken in: its offset commits with the turn."""
        self.inputs[topic] = next_offset
        self._moved = True

    def durable(self) -> asyncio.Future[None]:
        """A future that is done when all that was appended up to now is durable and in the store."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def inputs_of(self, turn: ClosedTurn) -> dict[str, int]:
        """A turn's input offsets, by topic."""
        return {topic: turn.positions.offsets[topic] for topic in self.inputs}

    @property
    def has_work(self) -> bool:
        """Whether the turn holds anything to commit."""
        return bool(self._appends or self._waiters or self._moved)

    def close_turn(self) -> ClosedTurn:
        """Ends the turn; what is appended from now on belongs to the next one."""
        number, changes = self.states.collect()
        offsets = self._positions.offsets
        for topic, offset in self.inputs.items():
            offsets[topic] = offset
        self._positions.seq = self.seq
        self._positions.lamport = self.lamport
        self._positions.applied_epoch = self.epoch
        positions = Positions(
            dict(offsets),
            self.seq,
            self.lamport,
            self._positions.fences,
            self.epoch,
            self._positions.log_identity,
        )
        turn = ClosedTurn(self, number, self._appends, self._traces, changes, positions, self._waiters)
        self._appends, self._traces, self._waiters, self._moved = [], [], [], False
        self.open_bytes = 0
        return turn

    def committed(self, turn: ClosedTurn) -> None:
        """The turn is durable and stored: wakes who waited for it."""
        for topic, offset in turn.positions.offsets.items():
            self._positions.offsets[topic] = max(self._positions.offsets.get(topic, 0), offset)
        self.states.stored(turn.number)
        for waiter in turn.waiters:
            if not waiter.done():
                waiter.set_result(None)


def fence(
    topic: str, partition: int, epoch: int, worker_id: str, taken: PartitionTaken, clock: Clock, codec: Codec
) -> Append:
    """The record that ends older epochs on one topic."""
    now = clock.now_us()
    record = EventRecord(UNNUMBERED, 0, now, epoch, worker_id, None, 0, (Event(taken),))
    return Append(topic, partition, None, codec.encode(record), now // 1000)
