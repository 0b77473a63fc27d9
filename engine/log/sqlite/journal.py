"""How large the log's journal (`-wal`) has grown, and who keeps it from being folded into the file.

SQLite folds it in at 16 MB and starts again at its beginning. A reader that keeps one transaction open stops that:
the log's own reads are short, but a `sqlite3` shell or a backup may stay for hours, until the disk is full.
"""

from __future__ import annotations

import time
from pathlib import Path

import structlog

from . import holder

log = structlog.get_logger(__name__)

#: From here on somebody is told; SQLite gives back what lies beyond once the journal starts again.
LIMIT = 64 << 20
#: One process tells it this often, in seconds.
TELL_EVERY = 60.0


class Journal:
    """One process's look at a log's journal: one `stat` a commit."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._told: float | None = None

    def look(self) -> None:
        """Warns when the journal is over the limit."""
        if size_of(self._log_file) <= LIMIT:
            return
        now = time.monotonic()
        if self._told is None or now - self._told >= TELL_EVERY:
            self._told = now
            log.warning("the log's journal grows", reason=describe(self._log_file))


def size_of(log_file: Path) -> int:
    """The journal's size in bytes; 0 when there is none."""
    try:
        return log_file.with_name(log_file.name + "-wal").stat().st_size
    except OSError:
        return 0


def describe(log_file: Path) -> str:
    """The journal's size for people and, where it is over the limit, who reads an old state."""
    size = size_of(log_file)
    told = f"{size / (1 << 20):.0f} MiB"
    if size <= LIMIT:
        return told
    readers = holder.readers(log_file)
    names = ", ".join(str(one) for one in readers[:3]) or "one that this process cannot see"
    return f"{told}, over {LIMIT >> 20} MiB: a process keeps a read transaction open, end it ({names})"
