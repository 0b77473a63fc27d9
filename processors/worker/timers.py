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
        self._loaded_to = 0

    def add(self, due: int, job_id: str) -> None:
        """A job was delayed or is to be retried. Far ones are found in the store when their time comes near."""
        if due <= self._loaded_to and (due, job_id) not in self._known:
            self._known.add((due, job_id))
            heappush(self._heap, (due, job_id))

    def due(self, now: int) -> list[tuple[int, str]]:
        """Pairs of due time and job id whose time has come."""
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

    def _load(self, now: int) -> None:
        # From the beginning: an entry is deleted when its job moves on, so what stands there is still to come.
        horizon = now + HORIZON
        count = 0
        for key, _ in self._view.scan(Family.TIMERS, limit=LOAD_MAX):
            due, job_id = int.from_bytes(key[:8], "big"), key[8:].decode()
            count += 1
            if due > horizon:
                break
            if (due, job_id) not in self._known:
                self._known.add((due, job_id))
                heappush(self._heap, (due, job_id))
        if count == LOAD_MAX and self._heap:
            horizon = max(due for due, _ in self._heap)
        self._loaded_to = horizon
