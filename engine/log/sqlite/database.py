"""The connections of one process to a log's file: transactions, time-outs and what goes wrong with them."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from ...ports.log import AppendRefused, LogUnavailable
from . import files, holder
from .bell import Bell
from .errors import FAILURES, is_contention, translate, translate_commit
from .journal import Journal

log = structlog.get_logger(__name__)

_PRAGMAS = (
    "synchronous=FULL",  # an acknowledged commit survives power loss
    "wal_autocheckpoint=4000",  # 16 MB: a checkpoint costs a few syncs, a long -wal slows readers down
    "journal_size_limit=67108864",  # gives back what one large transaction made the -wal file grow
    "trusted_schema=OFF",
    "cell_size_check=ON",
)
# SQLite's own waiting grows to 100 ms a step; between processes that commit every millisecond that wastes
# turns.
_RETRY_S = (0.0002, 0.003)
# A commit takes milliseconds: who waits so long wants to know for whom.
_WARN_AFTER_S = 2.0

_opened: dict[tuple[int, int], tuple[Bell, int]] = {}  # inode -> its bell and how often this process has it open
_opening = threading.Lock()


class Database:
    """One writing and one reading connection, each used by one thread at a time."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        """Opens or creates the file. Raises LogUnavailable or LogDamaged; `busy_timeout` in seconds."""
        self.path = path
        self._busy_timeout = busy_timeout
        self._process = os.getpid()
        self._closed = False
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        with _opening:
            files.refuse_network(path)
            files.ensure(path)
            self._inode = files.inode(path)
            self.bell, count = _opened.get(self._inode, (Bell(), 0))
            if count == 0:
                files.check_ours(path)
            try:
                self._writer = self._connect()
                self._reader = self._connect()
                self._reader.execute("PRAGMA query_only=ON")
                self._reader.execute("SELECT 1 FROM meta").fetchone()  # makes the -wal file, if there was none
            except FAILURES as error:
                raise translate(error, path, appending=False) from error
            _opened[self._inode] = (self.bell, count + 1)
        self._wal = path.with_name(path.name + "-wal")
        self._wal_inode = files.inode(self._wal)
        self._journal = Journal(path)

    @contextmanager
    def write(self, *, appending: bool = False) -> Iterator[sqlite3.Connection]:
        """A write transaction, committed at the end and rolled back on an error.

        With `appending`, failures are AppendRefused, else LogUnavailable. LogDamaged and OutcomeUnknown in
        both cases.
        """
        with self._write_lock:
            self._check_usable(appending)
            self._begin(appending)
            try:
                yield self._writer
            except BaseException as error:
                self._roll_back()
                if isinstance(error, FAILURES):
                    raise translate(error, self.path, appending=appending) from error
                raise
            try:
                self._writer.execute("COMMIT")
            except FAILURES as error:
                rolled_back = self._roll_back()
                raise translate_commit(error, self.path, rolled_back=rolled_back, appending=appending) from error
            self._journal.look()
        self.bell.ring()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A short read transaction: all statements see one state. Raises LogUnavailable or LogDamaged."""
        with self._read_lock:
            self._check_open(LogUnavailable)
            try:
                self._reader.execute("BEGIN")
                try:
                    yield self._reader
                finally:
                    self._reader.execute("ROLLBACK")
            except FAILURES as error:
                raise translate(error, self.path, appending=False) from error

    def data_version(self) -> int:
        """A number that changes when any connection but the reading one commits."""
        with self._read_lock:
            self._check_open(LogUnavailable)
            try:
                row: tuple[int] = self._reader.execute("PRAGMA data_version").fetchone()
            except FAILURES as error:
                raise translate(error, self.path, appending=False) from error
            return row[0]

    def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        with self._write_lock, self._read_lock, _opening:
            if self._closed:
                return
            self._closed = True
            self._writer.close()
            self._reader.close()
            bell, count = _opened.pop(self._inode)
            if count > 1:
                _opened[self._inode] = (bell, count - 1)
        self.bell.ring()

    def _connect_both(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        with contextlib.ExitStack() as undo:
            try:
                writer = undo.enter_context(contextlib.closing(self._connect()))
                reader = undo.enter_context(contextlib.closing(self._connect()))
                reader.execute("PRAGMA query_only=ON")
                reader.execute("SELECT 1 FROM meta").fetchone()  # makes the -wal file, if there was none
            except FAILURES as error:
                raise translate(error, self.path, appending=False) from error
            undo.pop_all()
            return writer, reader

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
        except FAILURES:
            connection.close()
            raise
        return connection

    def _begin(self, appending: bool) -> None:
        """Waits for the write lock of all processes, up to the time-out."""
        began = time.monotonic()
        warned, pause = False, _RETRY_S[0]
        self._writer.execute("PRAGMA busy_timeout=0")
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except FAILURES as error:
                waited = time.monotonic() - began
                if not is_contention(error) or waited > self._busy_timeout:
                    raise translate(error, self.path, appending=appending) from error
                if not warned and waited > _WARN_AFTER_S:
                    warned = True
                    self._warn(waited)
            time.sleep(random.uniform(0.5, 1.0) * pause)
            pause = min(pause * 2, _RETRY_S[1])

    def _warn(self, waited: float) -> None:
        who = holder.find(self.path)
        if who is not None:
            log.warning("another process keeps the log's write lock", holder=str(who), for_s=round(waited, 1))

    def _roll_back(self) -> bool:
        """Whether the transaction is surely undone; makes a new connection where it is not."""
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            return True
        except FAILURES:
            self._writer.close()
            self._writer = self._connect()
            return False

    def _check_usable(self, appending: bool) -> None:
        """A file that was taken away under a running process would still take commits, and lose them all."""
        kind = AppendRefused if appending else LogUnavailable
        self._check_open(kind)
        for path, known in ((self.path, self._inode), (self._wal, self._wal_inode)):
            try:
                same = files.inode(path) == known
            except LogUnavailable:
                same = False
            if not same:
                raise kind(
                    f"log {self.path}: {path.name} was removed or replaced while the log was in use: "
                    "nothing was done; "
                    "end all processes that use it, then open it again"
                )

    def _check_open(self, kind: type[LogUnavailable] | type[AppendRefused]) -> None:
        if self._closed:
            raise kind(f"log {self.path} was closed: open it again")
        if self._process != os.getpid():
            raise kind(f"log {self.path} was opened before a fork: open it again in the child process")
