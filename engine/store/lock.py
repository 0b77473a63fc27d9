"""A store folder's lock: whoever holds it may make, open for writing, set aside or remove what is in the folder.

RocksDB locks a folder only once it works in it, so by its lock alone nobody could tell a store that another process is
just making from a damaged one. This one is taken before anything is looked at. The kernel frees it with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

NAME = "writer.lock"


class FolderLock:
    """A held lock; it excludes other holders in this process, too."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    @classmethod
    def take(cls, folder: Path) -> FolderLock | None:
        """The lock of an existing folder; None while somebody holds it, or where it was moved away. Raises OSError."""
        path = folder / NAME
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return cls(handle)
        os.close(handle)
        return None

    def free(self) -> None:
        """Lets go; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def __del__(self) -> None:
        self.free()
