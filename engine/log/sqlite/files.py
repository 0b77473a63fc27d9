"""The log's file: where it may lie, how it comes to exist, and whether it is one of ours."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import uuid
from pathlib import Path

from ...ports.log import LogUnavailable
from ..disks import MOUNTS, NETWORK, file_system
from . import schema
from .errors import FAILURES, damaged, translate


def refuse_network(path: Path, mounts: Path = MOUNTS) -> None:
    """Raises LogUnavailable on a network file system."""
    kind = file_system(path, mounts)
    if kind in NETWORK:
        raise LogUnavailable(
            f"log {path} lies on a network file system ({kind}), where SQLite's locks cannot be relied on: "
            "name a path on a local disk, or use a kafka:// log to share one between machines"
        )


def ensure(path: Path) -> None:
    """Creates the log unless it exists. Raises LogUnavailable, or LogDamaged where only remains of one are.

    A new log is made complete under another name and then linked into place: nobody ever sees half a log, and
    an empty file is always one that lost its content.
    """
    if path.exists():
        if path.is_dir():
            raise LogUnavailable(f"log {path} is a folder: name a file in it")
        return
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        raise damaged(path, f"the file is gone but {wal.name} is still there")
    _create(path)


def _create(path: Path) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _fill(draft)
        _sync(draft)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(draft, path)
        _sync(path.parent)
    except FAILURES as error:
        raise translate(error, path, appending=False) from error
    except OSError as error:
        raise LogUnavailable(f"log {path} cannot be created: {error}: check the folder and its permissions") from error
    finally:
        draft.unlink(missing_ok=True)


def _fill(draft: Path) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(f"BEGIN; {schema.TABLES} COMMIT;")
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (uuid.uuid4().hex,))
        connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={schema.FORMAT}")
    finally:
        connection.close()  # the last connection folds its write-ahead log into the file


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_ours(path: Path) -> None:
    """Refuses, untouched, a file that is not a log or was written by a newer version.

    It opens the file beside SQLite, and closing it would drop the locks that SQLite holds in this process:
    call it only while no connection of this process is open.
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise LogUnavailable(f"log {path} cannot be read: {error}: check its permissions") from error
    if len(header) < 100:
        raise damaged(path, f"it ends after {len(header)} bytes, which a log never does")
    application, version = int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
    if header[:16] != b"SQLite format 3\0" or application != schema.APPLICATION_ID:
        raise LogUnavailable(f"{path} is not a Rewindq log and was left as it is: name another path")
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    size, wal = path.stat().st_size, path.with_name(path.name + "-wal")
    if size < page * pages and not (wal.exists() and wal.stat().st_size):
        raise damaged(path, f"it should have {page * pages} bytes and has {size}")
    if version > schema.FORMAT:
        raise LogUnavailable(
            f"log {path} has format {version}, this version of Rewindq knows up to {schema.FORMAT}: "
            "the file was left as it is; use the newer version"
        )


def inode(path: Path) -> tuple[int, int]:
    """What tells this very file from another one of its name. Raises LogUnavailable when it is gone."""
    try:
        status = path.stat()
    except OSError as error:
        raise LogUnavailable(f"log {path} is gone ({error}): put it back and open it again") from error
    return status.st_dev, status.st_ino
