"""Reading a memory log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ...ports.log import Record
from .. import refusals
from ..fetching import Cursor, Mark
from .state import MemoryState, Partition


class MemoryCursor:
    """Reads one partition forward."""

    def __init__(self, state: MemoryState, partition: Partition, offset: int) -> None:
        self.offset = offset
        self.partition = partition
        self._state = state

    def read(self, limit: int) -> list[Record]:
        """Up to `limit` next records. Raises NoSuchTopic, OffsetOutOfRange."""
        one = self.partition
        with self._state.changed:
            if one.deleted:
                raise refusals.no_such(one.topic, one.number)
            if not one.low <= self.offset <= one.end:
                raise refusals.out_of_range(one.topic, one.number, self.offset, one.low, one.end)
            first = bisect_left(one.offsets, self.offset)
            records = one.records[first : first + limit]
            last = first + limit >= len(one.records)
            self.offset = one.end if last else records[-1].offset + 1
            return records


class MemorySource:
    """Cursors over the state."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def cursor(self, topic: str, partition: int, offset: int) -> MemoryCursor:
        """A cursor at this offset. Raises NoSuchTopic."""
        with self._state.changed:
            return MemoryCursor(self._state, self._state.partition(topic, partition), offset)

    def ready(self, cursors: Sequence[Cursor]) -> Sequence[Cursor]:
        """All: looking costs nothing here."""
        return cursors

    def mark(self) -> Mark:
        """The number of changes."""
        return self._state.changes, 0

    def wait(self, mark: Mark, timeout: float) -> None:
        """Returns once something was committed after the mark, or after `timeout` seconds."""
        with self._state.changed:
            self._state.changed.wait_for(lambda: self._state.changes != mark[0], timeout)
