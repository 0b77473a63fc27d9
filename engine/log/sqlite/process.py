"""Which process is meant, whether it is still there, and the clock that all processes of a machine share."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process that no later one can be taken for. `started` in clock ticks since boot."""

    pid: int
    started: int
    boot: str
    namespace: int


def now() -> float:
    """Seconds since boot without sleep: the same in all processes, and a suspended machine expires nobody."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def this_process() -> ProcessId:
    """The calling process."""
    pid = os.getpid()
    started = _started(pid)
    if started is None:
        raise ProcessLookupError(f"/proc/{pid}/stat cannot be read: the embedded log needs Linux' /proc")
    return ProcessId(pid, started, boot_id(), _namespace())


def is_gone(process: ProcessId) -> bool:
    """Whether it has surely ended. A process of another container cannot be seen: then False."""
    if process.boot != boot_id():
        return True
    if process.namespace != _namespace():
        return False
    return _started(process.pid) != process.started


def _started(pid: int) -> int | None:
    """When the process started; None when there is none, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if state in "ZX" else int(fields[18])


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The same until the machine starts anew."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
