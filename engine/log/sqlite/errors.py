"""What SQLite's errors mean for a log, in the port's words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...ports.log import AppendRefused, LogDamaged, LogError, LogUnavailable, OutcomeUnknown

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CONTENTION = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_ADVICE = {
    sqlite3.SQLITE_FULL: "free disk space, then try again",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "make the file and its folder readable and writable for this user",
    sqlite3.SQLITE_CANTOPEN: "check that the folder exists and that this user may write to it",
    sqlite3.SQLITE_NOMEM: "free memory, then try again",
}


def code_of(error: sqlite3.Error) -> int:
    """The primary result code; SQLITE_MISUSE for errors of the Python module, which carry none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF


def is_contention(error: sqlite3.Error) -> bool:
    """Whether another connection was in the way, so that trying again may help."""
    return code_of(error) in _CONTENTION


def damaged(path: Path, what: str) -> LogDamaged:
    """The error for a file whose content cannot be trusted."""
    return LogDamaged(
        f"log {path} is damaged: {what}. Stop its workers, keep a copy of the file and its -wal, and restore from a backup"
    )


def translate(error: sqlite3.Error, path: Path, *, appending: bool) -> LogError:
    """The port's error for a statement that failed before its transaction was committed: nothing was done."""
    code = code_of(error)
    if code in _DAMAGE:
        return damaged(path, str(error))
    kind = AppendRefused if appending else LogUnavailable
    if code in _CONTENTION:
        return kind(f"log {path} stayed locked by another process: nothing was done; find it with `fuser {path}`")
    advice = _ADVICE.get(code, "see the disk's health and the system's log")
    return kind(f"log {path}: {error}: nothing was done; {advice}")


def translate_commit(error: sqlite3.Error, path: Path, *, rolled_back: bool, appending: bool) -> LogError:
    """The port's error for a COMMIT that failed.

    A failed sync leaves complete frames in the write-ahead log, which a crash at this moment would bring back: the
    outcome is unknown although the rollback succeeded.
    """
    synced = getattr(error, "sqlite_errorcode", 0) not in (
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
    )
    if rolled_back and synced:
        return translate(error, path, appending=appending)
    return OutcomeUnknown(f"log {path}: the commit failed with {error}: read the log's end to learn whether it took place")
