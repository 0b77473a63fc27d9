"""RocksDB's errors, which arrive as text, in the port's words."""

from __future__ import annotations

import re
from threading import Lock
from types import TracebackType

from rocksdict import DbClosedError

from ..ports.store import StoreDamaged, StoreError

_LOCKED = re.compile(r"While lock file|lock hold by current process")
_DAMAGE = re.compile(
    r"Corruption|No such file|not a directory|Invalid argument|Column famil|switched to a new MANIFEST", re.IGNORECASE
)


def damaged(path: str, reason: object) -> StoreDamaged:
    """The error for a folder that cannot be read."""
    return StoreDamaged(
        f"store {path} is damaged: {_one_line(reason)}: set it aside and rebuild it from the log, which holds all of it"
    )


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())


def closed(path: str) -> StoreError:
    """The error for a call after, or cut short by, close."""
    return StoreError(f"store {path} is closed: open it again to go on")


def is_locked(error: Exception) -> bool:
    """Whether opening failed because the store is open elsewhere."""
    return bool(_LOCKED.search(str(error)))


def translate(path: str, error: Exception) -> StoreError:
    """The port's error for what RocksDB raised."""
    if isinstance(error, DbClosedError):
        return closed(path)
    if _DAMAGE.search(str(error)):
        return damaged(path, error)
    return StoreError(f"store {path}: {_one_line(error)}: check the disk's space, its permissions and the system's log")


class Guard:
    """One call at a time, none after close, and RocksDB's errors in the port's words.

    RocksDB frees a folder only when its last iterator and handle are gone. Whoever holds the guard keeps them
    in frames that have ended before the guard is left, so `close`, which takes it too, meets none.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self.closed = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self.closed:
            self._lock.release()
            raise closed(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        # rocksdict raises bare Exception; anything more exact is the caller's own mistake.
        if error is not None and (type(error) is Exception or isinstance(error, DbClosedError)):
            del trace  # its frames hold iterators, and an error that is kept would keep the folder open
            raise translate(self._path, error) from error.with_traceback(None)

    def close(self) -> bool:
        """Refuses all later calls, once the one under way has ended. False when it was closed already."""
        with self._lock:
            was, self.closed = self.closed, True
        return not was
