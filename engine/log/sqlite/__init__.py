"""The embedded log: one SQLite file, used by any number of processes of one machine."""

from .log import SqliteLog, open_sqlite

__all__ = ["SqliteLog", "open_sqlite"]
