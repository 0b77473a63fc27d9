"""Starting and ending broker processes that outlive the program that started them."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process by pid and start time (clock ticks since boot): a reused pid is never taken for it."""

    pid: int
    start_ticks: int


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none or it is dead already."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields are counted from behind its last bracket.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def alive(process: Process) -> bool:
    """Whether this very process runs."""
    return start_ticks(process.pid) == process.start_ticks


def spawn(command: list[str], out: Path) -> Process:
    """Starts a program in a session of its own, with its output appended to `out`."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(out), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process(pid, start_ticks(pid) or 0)


def end(processes: list[Process], grace: float) -> None:
    """Asks these very processes to end, waits up to `grace` seconds for each, then kills what is left."""
    running = [process for process in processes if alive(process)]
    for process in running:
        # A frozen process would not hear the request before it is let run again.
        _signal(process, signal.SIGTERM)
        _signal(process, signal.SIGCONT)
    for process in running:
        if not wait_ended(process, grace):
            _signal(process, signal.SIGKILL)
            wait_ended(process, grace)


def wait_ended(process: Process, timeout: float) -> bool:
    """Whether the process has ended within `timeout` seconds."""
    if not alive(process):
        _reap(process.pid)
        return True
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        ended = bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)
    if ended:
        _reap(process.pid)
    return ended


def _signal(process: Process, number: signal.Signals) -> None:
    if alive(process):
        os.kill(process.pid, number)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # started by another program: not ours to reap
