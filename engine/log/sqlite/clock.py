"""The clock of an embedded log: one for all processes of the machine, which nobody sets while the machine runs.

It is set by the wall clock once for each boot of the machine and goes on by the time since boot, sleep included. So
neither a wall clock that is set, nor a process that sees another wall clock, moves it.
"""

from __future__ import annotations

import sqlite3
import time

from .database import Database
from .process import boot_id


def now_us(database: Database) -> int:
    """Microseconds since 1970 by the log's clock. Raises LogUnavailable, LogDamaged."""
    boot = boot_id()
    with database.read() as connection:
        began = _began(connection, boot)
    if began is None:
        with database.write() as connection:
            began = _began(connection, boot)  # another process may have been quicker
            if began is None:
                began = time.time_ns() // 1000 - _since_boot()
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('clock', ?)", (f"{began} {boot}",))
    return began + _since_boot()


def _began(connection: sqlite3.Connection, boot: str) -> int | None:
    """When this boot of the machine began by the log's clock; None where that is not settled."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'clock'").fetchone()
    if row is None:
        return None
    began, _, of = str(row[0]).partition(" ")
    return int(began) if of == boot else None


def _since_boot() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
