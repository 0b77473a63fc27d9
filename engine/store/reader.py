"""Reading a store that another process writes, or that nobody has open: a RocksDB secondary instance."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rocksdict import Rdict

from ..ports.store import Family, View
from .content import AsOf, Entry, digest_of
from .errors import translate
from .overlay import OverlayView, own_entries
from .rocks import Column, RocksReads


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


class Secondary(NamedTuple):
    """An opened secondary instance: `scratch` is its private folder, `uuid` the store it was opened on."""

    database: Rdict
    columns: dict[Family, Column]
    scratch: Path
    uuid: str


class RocksReader(RocksReads):
    """A `ReadStore`. `current_uuid` tells which store the folder holds now: an owner may have rebuilt it."""

    def __init__(self, path: str, open_: Callable[[], Secondary], current_uuid: Callable[[], str]) -> None:
        self._open, self._current_uuid = open_, current_uuid
        self._secondary = open_()
        super().__init__(path, self._secondary.database, self._secondary.columns)

    def refresh(self) -> None:
        """Catches up with what the owner has written, into its log too. Raises StoreError when it cannot."""
        with self._guard:
            if self._current_uuid() != self._secondary.uuid or not self._caught_up():
                self._reopen()

    def _caught_up(self) -> bool:
        try:
            self._database.try_catch_up_with_primary()
        except Exception as error:
            if "No such file" in str(error):  # the owner removed what was about to be read
                return False
            raise translate(self.path, error) from error
        return True

    def _reopen(self) -> None:
        opened, before = self._open(), self._secondary
        self._detach()
        shutil.rmtree(before.scratch, ignore_errors=True)
        self._secondary = opened
        self._attach(opened.database, opened.columns)

    def view(self, seq: int) -> View:
        """A read-only view as of a position."""
        return AsOf(self, seq)

    def close(self) -> None:
        """Ends scans under way with a StoreError and removes the reader's own files."""
        if self._guard.close():
            scratch = self._secondary.scratch
            del self._secondary
            self._detach()
            shutil.rmtree(scratch, ignore_errors=True)


class OverlayReader(OverlayView):
    """A branch for reading. `refresh` and `close` are of the branch's own store; its base is the caller's."""

    def __init__(self, own: RocksReader, base: View, seq: int) -> None:
        super().__init__(own, base, seq)
        self._reader: RocksReader = own

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
