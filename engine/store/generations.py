"""A partition's store folder and its generations `g1`, `g2`, …: the highest number is the current one.

A frozen process keeps its store open, and nobody can take an open RocksDB folder from it. Whoever takes its partition
over goes on in the next generation: a copy of the folder's files (immutable ones are linked), which opens at a
consistent prefix because every batch holds its own positions; the log supplies the rest.

Several processes may do this at once, and none of them waits for another one, which may be frozen. A generation is
filled in a draft of its own name and gets its number by one rename, which fails where that number is taken: so what
has a number is whole, and the one who came second uses the first one's. Only numbers below the current one are ever
removed, by the partition's owner, under the lock of each.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import structlog

from ..ports.store import Store, StoreDamaged, StoreError
from . import lock, opener
from .lock import FolderLock

log = structlog.get_logger(__name__)
_DRAFT = "draft-"
#: RocksDB files that never change once written.
_IMMUTABLE = ".sst"
#: Files that belong to the process that has the folder open.
_PRIVATE = ("LOCK", "LOG", "owner", lock.NAME)


def current(folder: Path) -> Path:
    """The generation in use (the first one when there is none yet)."""
    return folder / f"g{max(_numbers(folder), default=1)}"


def open_current(folder: Path, *, branch: str, partition: int) -> Store:
    """The store of the generation in use, for writing; made when there is none yet.

    A damaged one is set aside and an empty one begun after it. Raises as `opener.open_store`.
    """
    while True:
        if not _numbers(folder):
            _begin_empty(folder, 1, branch, partition)
        generation = current(folder)
        try:
            return opener.open_store(str(generation), branch=branch, partition=partition, create=False)
        except StoreDamaged as error:
            begin_anew(generation, str(error), branch=branch, partition=partition)
        except StoreError:
            if generation == current(folder):
                raise
            # Another process has gone on in a later one meanwhile.


def begin_anew(generation: Path, reason: str, *, branch: str, partition: int) -> None:
    """Sets a generation, which nobody may have open, aside, and begins an empty one after it.

    Raises StoreInUse, StoreError.
    """
    kept = opener.set_aside(str(generation))
    log.warning("store set aside", kept=kept, reason=reason)
    _begin_empty(generation.parent, _number(generation) + 1, branch, partition)


def succeed(folder: Path) -> None:
    """Makes the next generation as a copy of the current one, which another process keeps open. Raises StoreError."""
    old = current(folder)
    _publish(folder, _number(old) + 1, lambda draft: _copy(old, draft))


def clean(folder: Path) -> None:
    """Removes earlier generations, and drafts, that no process holds. For the partition's owner alone."""
    newest = _number(current(folder))
    for found in folder.iterdir():
        if found.name.startswith(_DRAFT) or 0 < _number(found) < newest:
            # What cannot be removed now is tried again by the next owner.
            with contextlib.suppress(OSError):
                _remove(found)


def _remove(generation: Path) -> None:
    if not (generation / lock.NAME).exists():
        return  # a draft whose maker comes to it right now
    held = FolderLock.take(generation)
    if held is None:
        return
    try:
        # Out of the way first, so that nobody meets half a store under a number.
        gone = generation.rename(_new_draft(generation.parent))
        shutil.rmtree(gone)
    finally:
        held.free()


def _begin_empty(folder: Path, number: int, branch: str, partition: int) -> None:
    _publish(folder, number, lambda draft: opener.make(draft, branch=branch, partition=partition))


def _publish(folder: Path, number: int, fill: Callable[[Path], None]) -> None:
    """Gives a number to a new generation, unless somebody else has given it to theirs meanwhile."""
    try:
        draft, held = _begin(folder)
        try:
            fill(draft)
            draft.rename(folder / f"g{number}")
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        finally:
            held.free()
    except OSError as error:
        raise StoreError(f"store {folder} cannot be made: {error}: check the folder and its permissions") from error


def _begin(folder: Path) -> tuple[Path, FolderLock]:
    """A draft and its lock, without which an owner that cleans would remove it."""
    while True:
        draft = _new_draft(folder)
        draft.mkdir(parents=True)
        held = FolderLock.take(draft)
        if held is not None:
            return draft, held


def _new_draft(folder: Path) -> Path:
    return folder / f"{_DRAFT}{uuid.uuid4().hex}"


def _copy(old: Path, new: Path) -> None:
    for source in sorted(old.iterdir()):
        if source.name.startswith(_PRIVATE) or not source.is_file():
            continue
        # A file may be removed by its owner meanwhile: the copy then fails to open and is rebuilt.
        with contextlib.suppress(FileNotFoundError):
            if source.suffix == _IMMUTABLE:
                os.link(source, new / source.name)
            else:
                shutil.copy2(source, new / source.name)


def _numbers(folder: Path) -> list[int]:
    try:
        return [number for found in folder.iterdir() if (number := _number(found))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"store {folder} cannot be read: {error}: check the folder and its permissions") from error


def _number(generation: Path) -> int:
    """A generation's number; 0 for anything else in the folder."""
    digits = generation.name.removeprefix("g")
    return int(digits) if digits != generation.name and digits.isdecimal() else 0
