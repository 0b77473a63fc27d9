"""What reverts need of a working set: versions that are not stored yet, and which commands were carried out.

A revert looks at every version since the job's first change. That is the one decision which needs more than an
aggregate's newest state, so what turns under way have written is kept here until it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ..core import state as s
from ..ports.store import Family

#: Reads a plain key of a family, and stores a mark.
Read = Callable[[Family, str, Callable[[bytes], s.Reverts]], s.Reverts | None]
Write = Callable[[str, s.Reverts], None]


class _Fresh(NamedTuple):
    turn: int
    key: str
    seq: int
    version: s.AggregateVersion


class FreshVersions:
    """The aggregates' versions of the turns that are not stored yet, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[_Fresh] = deque()

    def add(self, turn: int, key: str, seq: int | None, version: s.AggregateVersion) -> None:
        """Keeps a version that a turn wrote."""
        if seq is not None:
            self._kept.append(_Fresh(turn, key, seq, version))

    def drop(self, turn: int) -> None:
        """The turns up to this one are in the store."""
        while self._kept and self._kept[0].turn <= turn:
            self._kept.popleft()

    def of(self, key: str) -> list[tuple[int, s.AggregateVersion]]:
        """Those of an aggregate, as `(seq, version)`."""
        return [(one.seq, one.version) for one in self._kept if one.key == key]


class RevertMarks:
    """Which commands have reverted a job's changes of an aggregate."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    def of(self, job_id: str, resource: str) -> s.Reverts | None:
        """The newest of them."""
        return self._read(Family.MARKS, s.reverts_key(job_id, resource), s.decode_reverts)

    def keep(self, job_id: str, resource: str, value: s.Reverts) -> None:
        """Stores them."""
        self._write(s.reverts_key(job_id, resource), value)
