"""Parked jobs onto the investigation topic, for whoever follows it: each entry once, however long the topic is away.

That a job is parked is a fact of its own turn, together with what its source's offset says; the entry follows in a
turn that holds nothing else. So a topic that takes nothing holds up its entries alone: no handler runs again for it,
and the partition's other jobs go on. The fold keeps what is not there yet (`EntryPosted` ends it), so the next owner
goes on with it. Where a commit's outcome is not known, or came from another owner, the topic itself tells what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

import structlog

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.ports.log import Append, LogError, Turn
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import read_from

from .owner import About, Owner

log = structlog.get_logger(__name__)
#: Entries posted in one commit.
_AT_ONCE = 100
#: A topic that takes nothing is tried again after so many seconds, twice as many each time, up to the longest.
RETRY_DELAY, RETRY_LONGEST = 0.2, 5.0
_UNPOSTED = s.UNPOSTED.encode()


class _Entry(NamedTuple):
    """An entry that is not on the topic yet, and the number of the event that parked its job."""

    seq: int
    append: Append


class _Box:
    """What of an owner's is to be posted. `there`: events whose entries the topic has, None while it must be read."""

    def __init__(self, owner: Owner, entries: list[_Entry]) -> None:
        self.owner = owner
        self.entries = deque(entries)
        self.there: set[str] | None = None if entries else set()
        self.failed = False
        self.task: asyncio.Task[None] | None = None


class Parking:
    """Used from the worker's event loop. `commit` is called from threads."""

    def __init__(self, deployment: Deployment, commit: Callable[[Turn], list[int]], wake: Callable[[], None]) -> None:
        self._deployment = deployment
        self._commit = commit
        self._wake = wake
        self._topic = deployment.topics.investigation
        self._boxes: dict[int, _Box] = {}
        # A commit under way outlives its owner: who looks next what the topic has, waits for it.
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._threads: set[asyncio.Future[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether entries are about to be posted; those that were refused wait for the topic."""
        return any(box.entries and not box.failed for box in self._boxes.values())

    def waiting(self) -> int:
        """Entries that the topic has refused up to now."""
        return sum(len(box.entries) for box in self._boxes.values() if box.failed)

    def adopt(self, owner: Owner) -> None:
        """Goes on with what former owners have left."""
        entries = []
        for raw, value in owner.store.scan(Family.MARKS, _UNPOSTED):
            kept, seq = s.decode_unposted(value), int(raw.removeprefix(_UNPOSTED))
            about = About(kept.job_id, kept.attempt, b"", kept.resource, kept.trace_id, kept.correlation_id)
            body = e.MovedToInvestigation(*kept.body)
            entries.append(self._entry(owner, about, seq, e.Event(body, step=kept.step, status="fail")))
        self._boxes[owner.partition] = box = _Box(owner, entries)
        self._begin(box)

    def add(self, owner: Owner, about: About, event: e.Event) -> None:
        """A job was parked by the event that its owner has appended last."""
        box = self._boxes[owner.partition]
        box.entries.append(self._entry(owner, about, owner.seq - 1, event))
        self._begin(box)

    def drop(self, partition: int) -> None:
        """The partition is not owned any more."""
        box = self._boxes.pop(partition, None)
        if box is not None and box.task is not None:
            box.task.cancel()

    async def close(self) -> None:
        """Waits for the commit under way."""
        for partition in list(self._boxes):
            self.drop(partition)
        if self._threads:
            await asyncio.wait(self._threads)

    def _entry(self, owner: Owner, about: About, seq: int, event: e.Event) -> _Entry:
        job_id = about.job_id or ""
        whole = About(
            job_id,
            about.attempt,
            job_id.encode(),
            about.resource,
            about.trace_id,
            about.correlation_id,
            _position(owner.partition, seq),
        )
        return _Entry(seq, owner.input_record(self._topic, owner.partition, whole, event))

    def _begin(self, box: _Box) -> None:
        if box.entries and (box.task is None or box.task.done()):
            box.task = asyncio.get_running_loop().create_task(self._run(box))

    async def _run(self, box: _Box) -> None:
        delay = RETRY_DELAY
        while box.entries:
            await box.owner.durable()
            batch = [box.entries[place] for place in range(min(_AT_ONCE, len(box.entries)))]
            try:
                await self._in_thread(box, batch)
            except LogError as error:
                if not box.failed:
                    log.warning("parked jobs wait for the investigation topic", first=batch[0].seq, reason=str(error))
                box.failed = True
                self._wake()
                await asyncio.sleep(delay)
                delay = min(2 * delay, RETRY_LONGEST)
                continue
            box.failed, delay = False, RETRY_DELAY
            for entry in batch:
                box.owner.append(About(None, 0, entry.append.key or b""), (e.Event(e.EntryPosted(entry.seq)),))
                box.entries.popleft()
            self._wake()

    async def _in_thread(self, box: _Box, batch: list[_Entry]) -> None:
        posting = asyncio.get_running_loop().run_in_executor(None, self._post, box, batch)
        self._threads.add(posting)
        posting.add_done_callback(self._threads.discard)
        await asyncio.shield(posting)

    def _post(self, box: _Box, batch: list[_Entry]) -> None:
        partition = box.owner.partition
        with self._locks[partition]:
            there = self._there(partition) if box.there is None else box.there
            box.there = None
            appends = [entry.append for entry in batch if _position(partition, entry.seq) not in there]
            if appends:
                self._commit(Turn(appends, {}, frozenset({partition})))
            box.there = there

    def _there(self, partition: int) -> set[str]:
        """The events whose entries stand on the topic."""
        found = set()
        low, _ = self._deployment.log.bounds(self._topic, partition)
        for record in read_from(self._deployment, self._topic, partition, low):
            with contextlib.suppress(UndecodableRecord):
                found.add(self._deployment.codec.decode(record.value).causation_id or "")
        return found


def _position(partition: int, seq: int) -> str:
    return f"p{partition}@{seq}"
