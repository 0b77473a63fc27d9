"""Blobs as files in a folder, named by their content's hash."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

from ..ports.blobs import BlobMissing

_REF = re.compile(r"sha256:([0-9a-f]{64})")


class FolderBlobs:
    """Implements `Blobs` over a folder that all workers and tools share, as `ab/cd/<hex>`.

    Files are made readable for their owner only. OSErrors of a full, read-only or failing disk pass through.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def put(self, data: bytes) -> str:
        """Keeps the bytes durably and returns their reference. A damaged file of that name is replaced."""
        name = sha256(data).hexdigest()
        target = self._path(name)
        _make_folder(target.parent)
        if not _holds(target, data):
            _write(target, data)
        # Also when the file was there: whoever wrote it may have died before this.
        _sync_folder(target.parent)
        return f"sha256:{name}"

    def get(self, ref: str) -> bytes:
        """The bytes of a reference, their hash checked. Raises BlobMissing."""
        match = _REF.fullmatch(ref)
        if match is None:
            raise BlobMissing(f"{ref!r} is not a blob reference (sha256: and 64 hex digits)")
        try:
            # A link could lead out of the folder.
            with os.fdopen(os.open(self._path(match[1]), os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                data = file.read()
        except FileNotFoundError as error:
            raise BlobMissing(
                f"blob {ref} is not in {self.folder}; all workers and tools must share one --blobs folder"
            ) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise BlobMissing(f"blob {ref} in {self.folder} is a link, which is not followed") from error
        if sha256(data).hexdigest() != match[1]:
            raise BlobMissing(
                f"blob {ref} in {self.folder} is damaged: its bytes do not match its hash; restore the file"
            )
        return data

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name[2:4] / name


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _write(target: Path, data: bytes) -> None:
    """Readers see the whole file or none: written beside, made durable, then renamed."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _make_folder(folder: Path) -> None:
    """Makes the folder and its missing parents, each durably entered in its own parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
