"""Who holds the log's write lock: asked of the kernel, and only by who has waited, so it costs a commit nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

#: Where SQLite locks the file of its shared memory (`-shm`) for its one writer: "WAL-Index Locks" of its file format.
_WRITE_BYTE = 120
_STOPPED = "Tt"
_LINE = re.compile(r"\d+: (?:POSIX|OFDLCK) +\S+ +WRITE (-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) (\d+) (\d+|EOF)")


class Holder(NamedTuple):
    """A process with the write lock. `stopped`: it was frozen by a signal or a debugger, and will not let go."""

    pid: int
    command: str
    stopped: bool

    def __str__(self) -> str:
        what = f"process {self.pid} ({self.command})"
        return f"{what}, which is stopped: `kill -CONT {self.pid}` lets it go on" if self.stopped else what


def find(log: Path) -> Holder | None:
    """Who holds the write lock of a log's file now; None when nobody does, or one whom this process cannot see."""
    try:
        status = log.with_name(log.name + "-shm").stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return None
    file = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    for pid, major, minor, inode, first, last in _LINE.findall(locks):
        covers = int(first) <= _WRITE_BYTE and (last == "EOF" or int(last) >= _WRITE_BYTE)
        if covers and (int(major, 16), int(minor, 16), int(inode)) == file and int(pid) > 0:
            return _describe(int(pid))
    return None


def _describe(pid: int) -> Holder | None:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    # Its name only: the arguments of somebody's command may hold secrets.
    return Holder(pid, name.partition("(")[2], rest.split()[0] in _STOPPED)
