"""Reading a store beside its owner, as a RocksDB secondary instance, or without one, read-only.

A secondary instance passes over files that it misses, since the owner may just have replaced them; the read-only
one reports them as damage. So the first is used only while an owner is alive.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rocksdict import Rdict

from ..ports.store import Family, StoreDamaged, StoreError, View
from .content import AsOf, Entry, digest_of
from .errors import translate
from .overlay import OverlayView, own_entries
from .rocks import Column, RocksReads

#: How often a flush by the owner may come in between.
_CATCH_UPS = 100


class ReadStore(View, Protocol):
    """A store for reading: its content as of opening or of the last `refresh`."""

    def refresh(self) -> None:
        """Catches up with what the owner has written."""
        ...

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        ...

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over all families' keys and values in order, META keys in `skip` left out."""
        ...

    def close(self) -> None:
        """Ends scans under way with a StoreError and removes the reader's own files."""
        ...


class Opened(NamedTuple):
    """A database opened for reading. `scratch` is the reader's own folder, `uuid` the store it was opened on, `follows`
    whether it is a secondary instance."""

    database: Rdict
    columns: dict[Family, Column]
    scratch: Path
    uuid: str
    follows: bool


def catch_up(database: Rdict, folder: Path) -> None:
    """Brings a secondary instance up to its owner's state. Raises StoreDamaged when files are missing.

    What the owner flushes between the reading of its manifest and that of its write-ahead log is in neither: the
    instance would show newer positions with older content. The manifest then has grown, and it has to be read again.
    """
    for _ in range(_CATCH_UPS):
        before = _manifest(folder)
        try:
            database.try_catch_up_with_primary()
        except Exception as error:
            raise translate(str(folder), error) from error
        if before is not None and _manifest(folder) == before:
            return
    raise StoreError(f"store {folder} is rewritten faster than it can be read: try again when its owner has less to do")


def _manifest(folder: Path) -> tuple[str, int] | None:
    try:
        name = (folder / "CURRENT").read_text().strip()
        return name, (folder / name).stat().st_size
    except OSError:
        return None  # just being replaced by the next one


class RocksReader(RocksReads):
    """A `ReadStore`. `current_uuid` tells which store the folder holds now: an owner may have rebuilt it."""

    def __init__(self, path: str, open_: Callable[[], Opened], current_uuid: Callable[[], str]) -> None:
        self._open, self._current_uuid = open_, current_uuid
        self._opened = open_()
        super().__init__(path, self._opened.database, self._opened.columns)

    def refresh(self) -> None:
        """Catches up with what the owner has written, into its log too. Raises StoreError when it cannot."""
        with self._guard:
            same = self._opened.follows and self._current_uuid() == self._opened.uuid
            if not (same and self._caught_up()):
                self._reopen()

    def _caught_up(self) -> bool:
        try:
            catch_up(self._database, Path(self.path))
        except StoreDamaged:  # the owner removed what was about to be read; a new opening tells this from damage
            return False
        return True

    def _reopen(self) -> None:
        opened, before = self._open(), self._opened
        self._detach()
        shutil.rmtree(before.scratch, ignore_errors=True)
        self._opened = opened
        self._attach(opened.database, opened.columns)

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def close(self) -> None:
        """Ends scans under way with a StoreError and removes the reader's own files."""
        if self._guard.close():
            scratch = self._opened.scratch
            del self._opened
            self._detach()
            shutil.rmtree(scratch, ignore_errors=True)


class OverlayReader(OverlayView):
    """A branch for reading. `refresh` and `close` are of the branch's own store; its base is the caller's."""

    def __init__(self, own: RocksReader, base: View, seq: int) -> None:
        super().__init__(own, base, seq)
        self._reader = own

    def refresh(self) -> None:
        """Catches up with what the branch's owner has written."""
        self._reader.refresh()

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def entries(self, family: Family) -> Iterator[Entry]:
        """The branch's own content."""
        return own_entries(self._reader, family)

    def digest(self, *, skip: Sequence[bytes] = ()) -> str:
        """SHA-256 over the branch's own content, META keys in `skip` left out."""
        return digest_of(self, skip)

    def close(self) -> None:
        """Closes the branch's reader."""
        self._reader.close()
