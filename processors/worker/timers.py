"""Due times of delayed and retrying jobs of one partition: the near ones in memory, the rest in the store."""

from __future__ import annotations

from heapq import heappop, heappush

from rewindq.engine.ports.store import Family, View

#: Due times up to this far ahead are kept in memory, in microseconds.
HORIZON = 60_000_000
#: Most due times loaded at once.
LOAD_MAX = 20_000


class Timers:
    """What becomes due when. The store's index is the truth; entries whose job has moved on are passed over."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._heap: list[tuple[int, str]] = []
        self._known: set[tuple[int, str]] = set()
        self._now = 0
        self._loaded_to = 0
        self._go_on: bytes | None = None

    def add(self, due: int, job_id: str) -> None:
        """A job was delayed or is to be retried. Far ones are found in the store when their time comes near."""
        # What is not stored yet would be missed by the next load. Before the first one, nothing tells what is far.
        if due <= max(self._loaded_to, self._now + HORIZON) or not self._now:
            self._keep(due, job_id)

    def due(self, now: int) -> list[tuple[int, str]]:
        """Pairs of due time and job id whose time has come."""
        self._now = now
        if now + HORIZON // 2 > self._loaded_to:
            self._load(now)
        found = []
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            self._known.discard(entry)
            found.append(entry)
        return found

    def next_due(self) -> int | None:
        """The earliest due time in memory."""
        return self._heap[0][0] if self._heap else None

    def _keep(self, due: int, job_id: str) -> None:
        if (due, job_id) not in self._known:
            self._known.add((due, job_id))
            heappush(self._heap, (due, job_id))

    def _load(self, now: int) -> None:
        # From the beginning, or where the last load had to stop: an entry is deleted when its job starts, so those
        # that wait for a free place are found again, and passed over.
        horizon = now + HORIZON
        count, key = 0, b""
        for key, _ in self._view.scan(Family.TIMERS, start=self._go_on, limit=LOAD_MAX):
            due = int.from_bytes(key[:8], "big")
            if due > horizon:
                break
            count += 1
            self._keep(due, key[8:].decode())
        if count == LOAD_MAX:
            self._go_on, self._loaded_to = key + b"\0", int.from_bytes(key[:8], "big")
        else:
            self._go_on, self._loaded_to = None, horizon
