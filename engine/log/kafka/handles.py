"""Keeps open readers and members alive until they are closed.

A consumer that is freed by the garbage collector while it is a group's member blocks its process for good:
the client library ends it from inside the collector and waits for a thread that waits for the collector. So
nobody may forget one: it is held here until it is closed, by its user, by its log, or at the end of the
process.
"""

from __future__ import annotations

import atexit
import threading
from typing import Protocol


class Handle(Protocol):
    """Something that must be closed."""

    def close(self) -> None:
        """Closes it; a second call does nothing."""
        ...


class Handles:
    """The open handles of one log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Handle] = set()

    def keep(self, handle: Handle) -> None:
        """Holds a handle until `release`."""
        with self._lock:
            self._open.add(handle)
            _alive.add(self)

    def release(self, handle: Handle) -> None:
        """Lets go of a closed handle."""
        with self._lock:
            self._open.discard(handle)
            if not self._open:
                _alive.discard(self)

    def close(self) -> None:
        """Closes what is open."""
        with self._lock:
            handles = list(self._open)
        for handle in handles:
            handle.close()


_alive: set[Handles] = set()


@atexit.register
def _close_all() -> None:
    for handles in list(_alive):
        handles.close()
