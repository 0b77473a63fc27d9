"""Measuring whole processes: wall time, CPU of all children, disk."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """What a command took: wall and CPU seconds (its children included), peak resident MiB of its largest process."""

    wall: float
    cpu: float
    peak_mib: float


def run(command: Sequence[str], env: dict[str, str] | None = None, log: Path | None = None) -> Cost:
    """Runs a command to its end. Raises CalledProcessError with its output's place when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with Path(log or os.devnull).open("ab") as out:
        code = subprocess.run(
            command, env={**os.environ, **(env or {})}, stdout=out, stderr=out, check=False
        ).returncode
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        raise subprocess.CalledProcessError(code, command, f"see {log}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, after.ru_maxrss / 1024)


def rewindq(*arguments: str) -> list[str]:
    """The command line of this installation."""
    return [sys.executable, "-m", "rewindq.tools.cli", *arguments]


def disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, as allocated."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def median(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """`median (min–max)`."""
    return f"{statistics.median(values):,.2f} ({min(values):,.2f}–{max(values):,.2f})"
