"""Between the thread that polls the log and the worker's event loop: records in, ownership changes across."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import wait
from typing import Any

import structlog

from rewindq.engine.ports.log import LogError, Member, OffsetOutOfRange, Record

log = structlog.get_logger(__name__)

#: Records held for the loop before polling waits, and their values' bytes.
BUFFER_MAX = 5_000
BUFFER_BYTES = 16 * 1024 * 1024
#: How long a hand-over may hold up the group, in seconds.
HAND_OVER_MAX = 20.0
#: How often records of the partitions that stay are taken in during a hand-over, in seconds.
HAND_OVER_STEP = 0.02

Release = Callable[[list[int], bool], Coroutine[Any, Any, None]]


class Inbox:
    """Polls a member in a thread. Implements `Ownership` for it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None], release: Release, urgent: str = ""
    ) -> None:
        """Records of the topic `urgent` do not wait behind those of others: handlers wait for them."""
        self._loop = loop
        self._urgent_topic = urgent
        self._urgent: deque[Record] = deque()
        self._wake = wake
        self._release = release
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._records_lock = threading.Lock()  # a hand-over picks some out while the loop takes others
        self._assigned: deque[int] = deque()
        self._owned: set[int] = set()
        self._room = threading.Event()
        self._room.set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._member: Member | None = None
        self.error: BaseException | None = None

    # --- the loop's side ---

    def start(self, member: Member) -> None:
        """Begins to poll."""
        self._member = member
        self._thread = threading.Thread(target=self._poll, name="rewindq-poll", daemon=True)
        self._thread.start()

    def take(self, limit: int, room: int) -> list[Record]:
        """Up to `limit` records, each topic's in the order in which they came, and all urgent ones first.

        As many as it takes to fill `room` bytes; without any, the urgent ones alone.
        """
        with self._records_lock:
            found = [self._urgent.popleft() for _ in range(len(self._urgent))]
            last, left = len(found) + limit, room
            while self._records and left > 0 and len(found) < last:
                record = self._records.popleft()
                found.append(record)
                left -= _size(record)
            self._bytes -= room - left
        if not self._full:
            self._room.set()
        # Without room the next look is for who makes some.
        if self._records and room > 0:
            self._wake()
        return found

    def new_partitions(self) -> list[int]:
        """Partitions that were assigned since the last call."""
        found = []
        while self._assigned:
            found.append(self._assigned.popleft())
        return [partition for partition in found if partition in self._owned]

    def rejoin(self, partitions: list[int]) -> None:
        """Partitions that are still ours and must be taken over anew."""
        self._assigned.extend(p for p in partitions if p in self._owned)
        self._wake()

    def owns(self, partition: int) -> bool:
        """Whether the member owns the partition now."""
        return partition in self._owned

    def owns_only(self, partitions: Collection[int]) -> bool:
        """Whether these are all the partitions that the member owns."""
        return self._owned.issubset(partitions)

    @property
    def busy(self) -> bool:
        """Whether anything waits for the loop."""
        return bool(self._records or self._urgent or self._assigned)

    def stop(self) -> None:
        """Ends polling."""
        self._stop.set()
        self._room.set()

    def join(self) -> None:
        """Waits for the poll thread's end."""
        if self._thread is not None:
            self._thread.join()

    @property
    def _full(self) -> bool:
        return len(self._records) >= BUFFER_MAX or self._bytes >= BUFFER_BYTES

    # --- the poll thread's side ---

    def _poll(self) -> None:
        assert self._member is not None
        try:
            while not self._stop.is_set():
                self._room.wait(0.1)
                # Without room the membership is kept alive, and hardly anything taken in.
                try:
                    self._take_in(self._member.poll(0.1) if self._room.is_set() else self._member.poll(0.0, 1))
                except OffsetOutOfRange as error:
                    self._take_anew(error)
        except Exception as error:  # noqa: BLE001 - told to the worker, which ends by name
            self.error = error
            log.error("the log cannot be read any more", error=str(error))
            self._loop.call_soon_threadsafe(self._wake)

    def _take_in(self, records: list[Record]) -> None:
        if records:
            with self._records_lock:
                for record in records:
                    if record.topic == self._urgent_topic:
                        self._urgent.append(record)
                    else:
                        self._records.append(record)
                        self._bytes += _size(record)
            if self._full:
                self._room.clear()
            self._loop.call_soon_threadsafe(self._wake)

    def assigned(self, partitions: list[int]) -> None:
        """Ownership: these are ours now."""
        self._owned.update(partitions)
        self._assigned.extend(partitions)
        self._loop.call_soon_threadsafe(self._wake)

    def revoked(self, partitions: list[int]) -> None:
        """Ownership: hand these over; returns when their last commit has ended."""
        self._hand_over(partitions, lost=False)

    def lost(self, partitions: list[int]) -> None:
        """Ownership: these are somebody else's already."""
        self._hand_over(partitions, lost=True)

    def _take_anew(self, error: OffsetOutOfRange) -> None:
        """A partition's next input is not in the log any more. Its takeover finds the place to go on, or stops it."""
        assert self._member is not None
        log.warning("a partition is taken over anew", partition=error.partition, reason=str(error))
        self._member.stop(error.partition)
        if error.partition in self._owned:
            self.revoked([error.partition])
            self.assigned([error.partition])

    def _hand_over(self, partitions: list[int], *, lost: bool) -> None:
        self._owned.difference_update(partitions)
        with self._records_lock:
            for records in (self._records, self._urgent):
                kept = [record for record in records if record.partition in self._owned]
                records.clear()
                records.extend(kept)
            self._bytes = sum(map(_size, self._records))
        if self._stop.is_set():
            return
        done = asyncio.run_coroutine_threadsafe(self._release(partitions, lost), self._loop)
        deadline = time.monotonic() + HAND_OVER_MAX
        while not wait([done], HAND_OVER_STEP).done:
            if time.monotonic() > deadline:
                log.error("hand-over took too long; what is under way will be fenced", partitions=partitions)
                return
            self._poll_on()
        done.result()

    def _poll_on(self) -> None:
        """Partitions that stay go on meanwhile. What is wrong with the log is raised by the next poll outside."""
        if self._member is not None and self._room.is_set() and not self._stop.is_set():
            with contextlib.suppress(LogError):
                self._take_in(self._member.poll(0.0))


def _size(record: Record) -> int:
    return len(record.value or b"")
