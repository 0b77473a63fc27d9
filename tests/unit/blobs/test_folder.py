"""Blobs in a folder: durable, whole, checked, and never outside of it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.blobs.folder import FolderBlobs
from rewindq.engine.ports.blobs import BlobMissing, Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "deep" / "blobs")


def place(blobs: FolderBlobs, ref: str) -> Path:
    name = ref.removeprefix("sha256:")
    return blobs.folder / name[:2] / name[2:4] / name


@given(data=st.binary(max_size=300))
def test_bytes_come_back(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    port: Blobs = FolderBlobs(tmp_path_factory.getbasetemp() / "shared")
    ref = port.put(data)
    assert ref == "sha256:" + sha256(data).hexdigest()
    assert port.get(ref) == data
    assert port.put(data) == ref


def test_files_are_sharded_and_nothing_else_is_left(blobs: FolderBlobs) -> None:
    ref = blobs.put(b"x" * 100_000)
    assert [path for path in blobs.folder.rglob("*") if path.is_file()] == [place(blobs, ref)]
    assert FolderBlobs(str(blobs.folder)).get(ref) == b"x" * 100_000


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "sha256:",
        "sha256:" + "a" * 63,
        "sha256:" + "A" * 64,
        "sha256:" + "a" * 65,
        "md5:" + "a" * 64,
        "a" * 64,
        "sha256:" + "a" * 64 + "\n",
        "sha256:../../etc/passwd",
        "sha256:" + "../" * 21 + "a",
        "/etc/passwd",
    ],
)
def test_refs_have_one_form(blobs: FolderBlobs, ref: str) -> None:
    with pytest.raises(BlobMissing) as missing:
        blobs.get(ref)
    assert repr(ref) in str(missing.value)
    assert "64 hex digits" in str(missing.value)


def test_a_missing_blob_names_ref_and_folder(blobs: FolderBlobs) -> None:
    ref = "sha256:" + "0" * 64
    with pytest.raises(BlobMissing) as missing:
        blobs.get(ref)
    assert ref in str(missing.value)
    assert str(blobs.folder) in str(missing.value)
    assert "--blobs" in str(missing.value)


@pytest.mark.parametrize("damage", [b"", b"hell", b"hellO", b"hello "])
def test_a_damaged_blob_is_refused_and_mended_by_the_next_put(blobs: FolderBlobs, damage: bytes) -> None:
    ref = blobs.put(b"hello")
    place(blobs, ref).write_bytes(damage)
    with pytest.raises(BlobMissing) as missing:
        blobs.get(ref)
    assert ref in str(missing.value)
    assert "damaged" in str(missing.value)
    assert blobs.put(b"hello") == ref
    assert blobs.get(ref) == b"hello"


def test_links_are_not_followed(blobs: FolderBlobs, tmp_path: Path) -> None:
    """Not even to bytes that match."""
    ref = blobs.put(b"hello")
    (tmp_path / "outside").write_bytes(b"hello")
    place(blobs, ref).unlink()
    place(blobs, ref).symlink_to(tmp_path / "outside")
    with pytest.raises(BlobMissing, match="is a link"):
        blobs.get(ref)


def test_order_of_durability(blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, then its name, then the folder's entry: a crash at any place leaves the whole blob or none."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(handle: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{handle}"))
        steps.append("sync folder " + target.name if target.is_dir() else "sync file")
        fsync(handle)

    def recorded_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    name = blobs.put(b"hello").removeprefix("sha256:")
    parents = ["sync folder deep", "sync folder blobs", f"sync folder {name[:2]}"]
    assert steps[-3:] == ["sync file", "rename", f"sync folder {name[2:4]}"]
    assert steps[-6:-3] == parents

    steps.clear()
    blobs.put(b"hello")
    assert steps == [f"sync folder {name[2:4]}"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_nothing(blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    blobs.put(b"other")
    before = sorted(blobs.folder.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    ref = "sha256:" + sha256(b"hello").hexdigest()
    place(blobs, ref).parent.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(os if broken == "fsync" else Path, broken, full)
        with pytest.raises(OSError, match="No space left"):
            blobs.put(b"hello")
    left = [path for path in blobs.folder.rglob("*") if path.is_file()]
    assert left == [path for path in before if path.is_file()]
    with pytest.raises(BlobMissing):
        blobs.get(ref)


def test_many_writers_of_the_same_and_other_blobs(blobs: FolderBlobs) -> None:
    bodies = [bytes([at % 8]) * 50_000 for at in range(64)]
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(blobs.put, bodies))
    assert [blobs.get(ref) for ref in refs] == bodies
    assert sum(path.is_file() for path in blobs.folder.rglob("*")) == 8
