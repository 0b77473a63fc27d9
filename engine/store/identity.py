"""What a store's folder says of itself, beside the database: which store it is, and who has it open.

Both are small JSON files, so a folder of a newer format is recognised before RocksDB touches it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import msgspec

from ..ports.store import StoreError, StoreFormat
from . import lock
from .errors import damaged

FORMAT = 1
_IDENTITY, _OWNER = "identity.json", "owner.json"
_DRAFT = ".new"
#: One of these in a folder means that a database was begun in it.
_DATABASE = ("CURRENT", "MANIFEST-*", "*.sst", "*.log")


class Identity(msgspec.Struct, frozen=True):
    """Which store a folder holds. `base_seq` is set for a branch's overlay: the position it leaves from."""

    format: int
    uuid: str
    branch: str = ""
    partition: int = -1
    base_seq: int | None = None


class _Format(msgspec.Struct):
    format: int


class _Owner(msgspec.Struct):
    pid: int
    started: str


def new(*, branch: str = "", partition: int = -1, base_seq: int | None = None) -> Identity:
    """The identity of a store that is about to be made."""
    return Identity(FORMAT, uuid.uuid4().hex, branch, partition, base_seq)


def read(path: Path) -> Identity | None:
    """Which store `path` holds, None where it holds nothing yet.

    Raises StoreFormat for one of a newer format, StoreDamaged when it is not readable, StoreError for a
    folder of somebody else.
    """
    try:
        data = _content(path)
    except OSError as error:
        raise StoreError(f"store {path} cannot be read: {error}: check the folder and its permissions") from error
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise StoreFormat(
                f"store {path} has format {found}, this version of Rewindq knows up to {FORMAT}: it was "
                "left as it is; use the newer version"
            )
        return msgspec.json.decode(data, type=Identity)
    except msgspec.DecodeError as error:
        raise damaged(str(path), f"{_IDENTITY}: {error}") from error


def _content(path: Path) -> bytes | None:
    """The identity's bytes; None where a store may be made. Raises OSError, StoreError for somebody else's folder."""
    file = path / _IDENTITY
    try:
        return file.read_bytes()
    except FileNotFoundError:
        if not path.is_dir() or all(_is_begun(entry.name) for entry in path.iterdir()):
            return None
        if file.exists():  # another process has made it between the two looks
            return _content(path)
        raise StoreError(f"{path} holds files but no store and was left as it is: name another folder") from None


def _is_begun(name: str) -> bool:
    """Whether a file is one that stands in a folder before its identity does."""
    return name == lock.NAME or name.startswith(_IDENTITY + _DRAFT)


def create(path: Path, identity: Identity) -> None:
    """Makes the folder with its identity, whole or not at all. Raises StoreError when that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        _replace(path / _IDENTITY, msgspec.json.encode(identity))
    except OSError as error:
        raise StoreError(f"store {path} cannot be made: {error}: check the folder and its permissions") from error


def has_database(path: Path) -> bool:
    """Whether a database was begun in the folder."""
    return any(True for pattern in _DATABASE for _ in path.glob(pattern))


def claim(path: Path) -> None:
    """Names this process as the owner. Call it while holding the folder's lock, which is what decides."""
    _replace(path / _OWNER, msgspec.json.encode(_Owner(os.getpid(), _started(os.getpid()))))


def release(path: Path) -> None:
    """Takes the name back, before the folder's lock is given up."""
    with contextlib.suppress(OSError):  # a folder that was moved meanwhile; the note would be stale anyway
        (path / _OWNER).unlink()


def owner(path: Path) -> int | None:
    """The process that has the store open for writing, None when none is known to be alive."""
    try:
        found = msgspec.json.decode((path / _OWNER).read_bytes(), type=_Owner)
    except (OSError, msgspec.DecodeError):
        return None
    return found.pid if found.started and _started(found.pid) == found.started else None


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks, which tells reused numbers apart; '' if it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[19]


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}{_DRAFT}-{uuid.uuid4().hex}")
    draft.write_bytes(data)
    draft.replace(path)
