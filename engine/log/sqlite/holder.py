"""Who holds the log's locks: asked of the kernel, and only by who has waited, so it costs a commit nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

#: Where SQLite locks the file of its shared memory (`-shm`) for its one writer: "WAL-Index Locks" of its file format.
_WRITE_BYTE = 120
#: The same of its readers.
_READ_BYTES = range(123, 128)
_STOPPED = "Tt"
_LINE = re.compile(r"\d+: (?:POSIX|OFDLCK) +\S+ +(READ|WRITE) +(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) (\d+) (\d+|EOF)")


class Holder(NamedTuple):
    """A process with a lock. `stopped`: it was frozen by a signal or a debugger, and will not let go."""

    pid: int
    command: str
    stopped: bool

    def __str__(self) -> str:
        what = f"process {self.pid} ({self.command})"
        return f"{what}, which is stopped: `kill -CONT {self.pid}` lets it go on" if self.stopped else what


def find(log: Path) -> Holder | None:
    """Who holds the write lock of a log's file now; None when nobody does, or one whom this process cannot see."""
    pids = _holders(log, "WRITE", range(_WRITE_BYTE, _WRITE_BYTE + 1))
    return _describe(pids[0]) if pids else None


def readers(log: Path) -> list[Holder]:
    """Other processes that read a log's file now, as far as this one can see them."""
    found = [_describe(pid) for pid in _holders(log, "READ", _READ_BYTES) if pid != os.getpid()]
    return [one for one in found if one is not None]


def _holders(log: Path, kind: str, wanted: range) -> list[int]:
    """Ids of processes with a lock of this kind on one of these bytes of the log's shared memory."""
    try:
        status = log.with_name(log.name + "-shm").stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return []
    file = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    found = []
    for lock, pid, major, minor, inode, first, last in _LINE.findall(locks):
        covers = int(first) < wanted.stop and (last == "EOF" or int(last) >= wanted.start)
        if lock == kind and covers and (int(major, 16), int(minor, 16), int(inode)) == file and int(pid) > 0:
            found.append(int(pid))
    return found


def _describe(pid: int) -> Holder | None:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    # Its name only: the arguments of somebody's command may hold secrets.
    return Holder(pid, name.partition("(")[2], rest.split()[0] in _STOPPED)
