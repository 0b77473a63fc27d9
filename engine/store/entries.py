"""The entries of parked jobs that the investigation topic has not got yet, as marks of a working set."""

from __future__ import annotations

from collections.abc import Callable

from ..core import state as s
from ..ports.store import Family

#: Reads a plain key of a family, and stores or removes a mark.
Read = Callable[[Family, str, Callable[[bytes], s.Unposted]], s.Unposted | None]
Write = Callable[[str, s.Unposted | None], None]


class EntryMarks:
    """By the number of the event that parked their job."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    def of(self, seq: int) -> s.Unposted | None:
        """One of them."""
        return self._read(Family.MARKS, s.unposted_key(seq), s.decode_unposted)

    def put(self, seq: int, value: s.Unposted | None) -> None:
        """Stores or removes it."""
        self._write(s.unposted_key(seq), value)
