"""A running attempt: what the worker keeps of it while its handler runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rewindq.engine.core.events import CancelRequested, Event
from rewindq.engine.core.sizes import RECORD_MAX, size_of
from rewindq.engine.core.state import JobHead
from rewindq.engine.ports.clock import Clock
from rewindq.engine.runtime.app import JobType

from .owner import About, Owner


class Run:
    """One attempt of one job. Its buffer holds events that only this attempt knows of; `flush` decides them."""

    def __init__(
        self,
        owner: Owner,
        job_id: str,
        head: JobHead,
        attempt: int,
        job_type: JobType,
        token: int | None,
        clock: Clock,
    ) -> None:
        self.owner = owner
        self.job_id = job_id
        self.head = head
        self.attempt = attempt
        self.job_type = job_type
        self.token = token
        self.clock = clock
        self.began = clock.monotonic()
        self.started_us = clock.now_us()
        self.closed = False
        #: This attempt undoes the job's effects instead of running its handler.
        self.compensating = False
        self.secrets: list[str] = []
        self.leases: set[str] = set()
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        #: Ends the attempt whose time is over but whose thread runs on; told whether the thread has ended.
        self.overdue: Callable[[bool], None] | None = None
        self.cancelled: CancelRequested | None = None
        self._buffer: list[Event] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._size = 0
        self.last_seq = owner.seq - 1
        self._requests = 0

    @property
    def duration(self) -> int:
        """Milliseconds since the attempt's handler began."""
        return int((self.clock.monotonic() - self.began) * 1000)

    def next_request(self) -> str:
        """An id for a request to another partition."""
        self._requests += 1
        return f"{self.job_id}/{self.attempt}/{self._requests}"

    def record(self, event: Event) -> None:
        """Buffers an event that changes nothing others can see. A full buffer is decided: records are bounded."""
        self._buffer.append(event)
        self._size += size_of(event)
        if self._size > RECORD_MAX:
            self.flush()

    def settle(self, key: str) -> None:
        """Decides the buffer when it tells of the effect with this key: what comes next depends on it."""
        if any(getattr(event.body, "key", None) == key for event in self._buffer):
            self.flush()

    def flush(self, events: Iterable[Event] = ()) -> None:
        """Decides the buffered events and these."""
        self._buffer.extend(events)
        if not self._buffer:
            return
        decided, self._buffer, self._size = self._buffer, [], 0
        about = About.job(self.job_id, self.head, self.attempt, self.owner.partition, self.last_seq)
        self.last_seq = self.owner.append(about, decided) - 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def decided(self) -> None:
        """Returns when more of this attempt is decided: an outcome, or its end."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def close(self) -> None:
        """The attempt is over: whatever its handler still asks for is refused."""
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
