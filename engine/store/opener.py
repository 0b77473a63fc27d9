"""Opening stores on disk for writing, for reading, as a branch's overlay; setting a damaged one aside."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from shutil import rmtree

from rocksdict import AccessType, Options, Rdict

from ..ports.store import Family, Store, StoreDamaged, StoreError, StoreInUse, View
from . import identity, options
from .errors import damaged, is_locked, translate
from .identity import Identity
from .lock import NAME as LOCK
from .lock import FolderLock
from .overlay import Overlay
from .reader import Opened, OverlayReader, ReadStore, RocksReader, catch_up
from .rocks import Column, RocksStore

#: How often a reader is opened anew when the owner removes files that it was about to read.
_READER_TRIES = 10


def open_store(path: str, *, branch: str, partition: int, create: bool = True) -> Store:
    """The store of one (branch, partition) in the folder `path`, made when it does not exist, with `create`.

    Raises StoreInUse naming its owner, StoreDamaged (see `set_aside`), StoreFormat for a newer format, and
    StoreError for a folder that is another store's or somebody else's; such folders are left as they are.
    """
    folder = Path(path)
    # Before the lock is taken: a folder that is not this store's is left as it is.
    if not _expect(folder, branch, partition) and not create:
        raise _missing(folder)
    lock = _lock(folder)
    try:
        if not _expect(folder, branch, partition):
            identity.create(folder, identity.new(branch=branch, partition=partition))
        return _open_writer(folder, lock)
    except BaseException:
        lock.free()
        raise


def make(folder: Path, *, branch: str, partition: int) -> None:
    """Makes an empty store, whole, in a new folder whose lock the caller holds. Raises StoreError."""
    identity.create(folder, identity.new(branch=branch, partition=partition))
    _open(folder, options.database(), options.families(), AccessType.read_write()).close()


def _expect(folder: Path, branch: str, partition: int) -> bool:
    """Whether this very store is there; False where there is none yet. Raises StoreError for anything else."""
    found = identity.read(folder)
    if found is None:
        return False
    if found.base_seq is not None:
        raise StoreError(f"{folder} is a branch's overlay: open it with open_overlay and its base")
    if (found.branch, found.partition) != (branch, partition):
        raise StoreError(
            f"store {folder} belongs to partition {found.partition} of branch {found.branch!r}, not to "
            f"partition {partition} of {branch!r}: name that store's own folder"
        )
    return True


def _lock(folder: Path) -> FolderLock:
    """The folder's lock; makes the folder. Raises StoreInUse."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock.take(folder)
    except OSError as error:
        raise StoreError(f"store {folder} cannot be made: {error}: check the folder and its permissions") from error
    if lock is None:
        raise _in_use(folder)
    return lock


def new_overlay(path: str, base: View, seq: int) -> Store:
    """A new branch's overlay in the new folder `path`, over any `base` as of `seq`. Raises StoreError."""
    return Overlay(_new_layer(path, seq), base, seq, _new_layer)


def open_overlay(path: str, base: View, seq: int) -> Store:
    """An existing branch's overlay over `base` as of `seq`. Raises like `open_store`."""
    _check_overlay(Path(path), seq)
    return Overlay(_open_layer(Path(path)), base, seq, _new_layer)


def open_reader(path: str) -> ReadStore:
    """The store for reading, its owner running or not. Raises StoreError where there is none."""
    found = identity.read(Path(path))
    if found is not None and found.base_seq is not None:
        raise StoreError(f"{path} is a branch's overlay: open it with open_overlay_reader and its base")
    return _open_reader(Path(path))


def open_overlay_reader(path: str, base: View, seq: int) -> ReadStore:
    """A branch's overlay for reading, over `base` as of `seq`. Raises like `open_reader`."""
    _check_overlay(Path(path), seq)
    return OverlayReader(_open_reader(Path(path)), base, seq)


def set_aside(path: str) -> str:
    """Renames a store that cannot be used to `<path>.damaged-<n>`, nothing is deleted. The new path.

    Raises StoreInUse while a process has it open, StoreError when it cannot be renamed.
    """
    folder = Path(path)
    try:
        lock = FolderLock.take(folder)
        if lock is None:
            raise StoreInUse(f"store {path} is open in {_who(folder)}: close it there, then set it aside")
        try:
            kept = _free_name(folder)
            folder.rename(kept)
        finally:
            lock.free()
    except OSError as error:
        raise StoreError(f"store {path} cannot be set aside: {error}: move the folder away by hand") from error
    return str(kept)


def _free_name(folder: Path) -> Path:
    number = 1
    while (kept := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
        number += 1
    return kept


def _new_layer(path: str, seq: int) -> RocksStore:
    folder = Path(path)
    if identity.read(folder) is not None:
        raise StoreError(f"{path} holds a store already: open the branch with open_overlay, or name another folder")
    lock = _lock(folder)
    try:
        identity.create(folder, identity.new(base_seq=seq))
        return _layer(folder, lock)
    except BaseException:
        lock.free()
        raise


def _check_overlay(folder: Path, seq: int) -> None:
    found = _existing(folder)
    if found.base_seq is None:
        raise StoreError(f"store {folder} is no branch's overlay: open it with open_store")
    if found.base_seq != seq:
        raise StoreError(f"the branch in {folder} leaves its base at {found.base_seq}, not at {seq}: open it there")


def _existing(folder: Path) -> Identity:
    found = identity.read(folder)
    if found is None:
        raise _missing(folder)
    return found


def _missing(folder: Path) -> StoreError:
    return StoreError(f"there is no store in {folder}: it is made when a worker first takes the partition over")


def _open_writer(folder: Path, lock: FolderLock) -> RocksStore:
    database = _open(folder, options.database(), options.families(), AccessType.read_write())
    return _writer(folder, lock, database, _family_columns(database))


def _open_layer(folder: Path) -> RocksStore:
    lock = _lock(folder)
    try:
        return _layer(folder, lock)
    except BaseException:
        lock.free()
        raise


def _layer(folder: Path, lock: FolderLock) -> RocksStore:
    database = _open(folder, options.overlay(), None, AccessType.read_write())
    return _writer(folder, lock, database, _prefixed_columns(database))


def _writer(folder: Path, lock: FolderLock, database: Rdict, columns: dict[Family, Column]) -> RocksStore:
    def free() -> None:
        identity.release(folder)
        lock.free()

    identity.claim(folder)
    return RocksStore(str(folder), database, columns, new_layer=_new_layer, on_close=free)


def _open_reader(folder: Path) -> RocksReader:
    return RocksReader(str(folder), partial(_open_for_reading, folder), lambda: _existing(folder).uuid)


def _open_for_reading(folder: Path) -> Opened:
    scratch = Path(tempfile.mkdtemp(prefix="rewindq-reader-"))
    try:
        for _ in range(_READER_TRIES):
            try:
                return _open_beside(folder, scratch)
            except StoreDamaged as error:
                failed = error
                if identity.owner(folder) is None:
                    break
        raise failed
    except BaseException:
        rmtree(scratch, ignore_errors=True)
        raise


def _open_beside(folder: Path, scratch: Path) -> Opened:
    found, follows = _existing(folder), identity.owner(folder) is not None
    access = AccessType.secondary(str(scratch)) if follows else AccessType.read_only(False)
    if found.base_seq is None:
        settings, families, columns = options.database(), options.families(), _family_columns
    else:
        settings, families, columns = options.overlay(), None, _prefixed_columns
    database = _open(folder, options.reading(settings, str(scratch)), families, access)
    if follows:
        catch_up(database, folder)
    return Opened(database, columns(database), scratch, found.uuid, follows)


def _open(folder: Path, database: Options, families: dict[str, Options] | None, access: AccessType) -> Rdict:
    if identity.has_database(folder) and not (folder / "CURRENT").exists():
        raise damaged(str(folder), "the file CURRENT is gone")
    try:
        return Rdict(str(folder), database, column_families=families, access_type=access)
    except Exception as error:
        if is_locked(error):
            raise _in_use(folder) from error
        raise translate(str(folder), error) from error


def _in_use(folder: Path) -> StoreInUse:
    return StoreInUse(
        f"store {folder} is open for writing in {_who(folder)}: stop it first (`fuser {folder / LOCK}` finds it), or "
        "open the store for reading"
    )


def _who(folder: Path) -> str:
    owner = identity.owner(folder)
    return "another process" if owner is None else f"process {owner}"


def _family_columns(database: Rdict) -> dict[Family, Column]:
    return {
        family: Column(database.get_column_family(family.value), database.get_column_family_handle(family.value), b"")
        for family in Family
    }


def _prefixed_columns(database: Rdict) -> dict[Family, Column]:
    handle = database.get_column_family_handle("default")
    return {family: Column(database, handle, bytes([number])) for number, family in enumerate(Family, 1)}
