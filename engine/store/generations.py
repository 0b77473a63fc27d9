"""A partition's store folder and its generations.

A frozen process keeps its store open, and nobody can take an open RocksDB folder from it. Whoever takes its partition
over goes on in the next generation: a copy of the folder's files (immutable ones are linked), which opens at a
consistent prefix because every batch holds its own positions; the log supplies the rest. The file `CURRENT` names the
generation in use; older ones are removed once nobody holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

_POINTER = "CURRENT"
#: RocksDB files that never change once written.
_IMMUTABLE = ".sst"
#: Files that belong to the process that has the folder open.
_PRIVATE = ("LOCK", "LOG", "owner")


def current(folder: Path) -> Path:
    """The generation in use (the first one when there is none yet)."""
    try:
        return folder / (folder / _POINTER).read_text("ascii").strip()
    except FileNotFoundError:
        return folder / "g1"


def succeed(folder: Path) -> Path:
    """Makes the next generation as a copy of the current one, which another process keeps open, and points to it."""
    old = current(folder)
    new = folder / f"g{int(old.name[1:]) + 1}"
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(parents=True)
    for source in sorted(old.iterdir()):
        if source.name.startswith(_PRIVATE) or not source.is_file():
            continue
        # A file may be removed by its owner meanwhile: the copy then fails to open and is rebuilt.
        with contextlib.suppress(FileNotFoundError):
            if source.suffix == _IMMUTABLE:
                os.link(source, new / source.name)
            else:
                shutil.copy2(source, new / source.name)
    point_to(folder, new)
    return new


def point_to(folder: Path, generation: Path) -> None:
    """Makes a generation the current one, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{_POINTER}.{os.getpid()}"
    temporary.write_text(generation.name, "ascii")
    temporary.replace(folder / _POINTER)


def clean(folder: Path) -> None:
    """Removes older generations that no process holds open."""
    kept = current(folder)
    for generation in folder.glob("g[0-9]*"):
        if generation != kept and generation.name[1:].isdigit() and not _held(generation):
            shutil.rmtree(generation, ignore_errors=True)


def _held(generation: Path) -> bool:
    try:
        with (generation / "LOCK").open("rb+") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(lock, fcntl.LOCK_UN)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
