"""What SQLite's errors mean for a log, in the port's words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...ports.log import AppendRefused, LogDamaged, LogError, LogUnavailable, OutcomeUnknown
from . import holder

# The statements are fixed and the numbering is ours: a missing table, a row that is there already and text
# that is no UTF-8 come from damage alone. A message that holds such text gives a UnicodeDecodeError.
FAILURES = (sqlite3.Error, UnicodeDecodeError)
_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}
_CONTENTION = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_ADVICE = {
    sqlite3.SQLITE_FULL: "free disk space, then try again",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "make the file and its folder readable and writable for this user",
    sqlite3.SQLITE_CANTOPEN: "check that the folder exists and that this user may write to it",
    sqlite3.SQLITE_NOMEM: "free memory, then try again",
}


def code_of(error: Exception) -> int:
    """The primary result code; SQLITE_MISUSE for errors of the Python module, which carry none."""
    if isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & 0xFF


def is_contention(error: Exception) -> bool:
    """Whether another connection was in the way, so that trying again may help."""
    return code_of(error) in _CONTENTION


def damaged(path: Path, what: str) -> LogDamaged:
    """The error for a file whose content cannot be trusted."""
    return LogDamaged(
        f"log {path} is damaged: {what}. Stop its workers, keep a copy of the file and its -wal, and "
        "restore from a backup"
    )


def translate(error: Exception, path: Path, *, appending: bool) -> LogError:
    """The port's error for a statement that failed before its transaction was committed: nothing was done."""
    code = code_of(error)
    if code in _DAMAGE:
        return damaged(path, str(error))
    kind = AppendRefused if appending else LogUnavailable
    if code in _CONTENTION:
        who = holder.find(path)
        told = f"another process; find it with `fuser {path}`" if who is None else str(who)
        return kind(f"log {path} stayed locked, nothing was done: its write lock is held by {told}")
    advice = _ADVICE.get(code, "see the disk's health and the system's log")
    return kind(f"log {path}: {error}: nothing was done; {advice}")


def translate_commit(error: Exception, path: Path, *, rolled_back: bool, appending: bool) -> LogError:
    """The port's error for a COMMIT that failed.

    A failed sync leaves complete frames in the write-ahead log, which a crash at this moment would bring
    back: the outcome is unknown although the rollback succeeded.
    """
    synced = getattr(error, "sqlite_errorcode", 0) not in (
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
    )
    if rolled_back and synced:
        return translate(error, path, appending=appending)
    return OutcomeUnknown(
        f"log {path}: the commit failed with {error}: read the log's end to learn whether it took place"
    )
