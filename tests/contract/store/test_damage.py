"""Damaged files are reported as damage, at opening or at the first read that meets them; never as other content."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.store_process import written

from rewindq.engine.ports.store import StoreDamaged
from rewindq.engine.store.opener import open_reader, open_store, set_aside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store whose content is in SST files."""
    path = tmp_path / "s"
    store = open_store(str(path), branch="", partition=0)
    written(store, 60)
    store.close()
    assert list(path.glob("*.sst"))
    return path


def read_all(folder: Path) -> str:
    store = open_store(str(folder), branch="", partition=0)
    try:
        return store.digest()
    finally:
        store.close()


def biggest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def flip_first_block(folder: Path) -> None:
    flip(biggest(folder, "*.sst"), 50)


def flip_footer(folder: Path) -> None:
    sst = biggest(folder, "*.sst")
    flip(sst, sst.stat().st_size - 3)


def truncate_sst(folder: Path) -> None:
    sst = biggest(folder, "*.sst")
    os.truncate(sst, sst.stat().st_size // 2)


def delete_sst(folder: Path) -> None:
    biggest(folder, "*.sst").unlink()


def delete_manifest(folder: Path) -> None:
    biggest(folder, "MANIFEST-*").unlink()


def flip_manifest(folder: Path) -> None:
    flip(biggest(folder, "MANIFEST-*"), 20)


def empty_manifest(folder: Path) -> None:
    os.truncate(biggest(folder, "MANIFEST-*"), 0)


def delete_current(folder: Path) -> None:
    (folder / "CURRENT").unlink()


def delete_current_and_logs(folder: Path) -> None:
    for path in (folder / "CURRENT", *folder.glob("*.log")):
        path.unlink()


def garble_current(folder: Path) -> None:
    (folder / "CURRENT").write_bytes(b"\x00\x00\x00")


DAMAGES = [
    flip_first_block,
    flip_footer,
    truncate_sst,
    delete_sst,
    delete_manifest,
    flip_manifest,
    empty_manifest,
    delete_current,
    delete_current_and_logs,
    garble_current,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_reported_with_the_next_step(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder)
    before = {path.name for path in folder.iterdir()}
    with pytest.raises(StoreDamaged, match=rf"{folder} is damaged.*set it aside and rebuild"):
        read_all(folder)
    kept = Path(set_aside(str(folder)))
    assert {path.name for path in kept.glob("*.sst")} == {name for name in before if name.endswith(".sst")}
    rebuilt = open_store(str(folder), branch="", partition=0)
    written(rebuilt, 2)
    rebuilt.close()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_reader_reports_it_too(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder)
    with pytest.raises(StoreDamaged, match="is damaged"):
        open_reader(str(folder)).digest()


def test_an_error_that_is_kept_does_not_keep_the_folder(folder: Path) -> None:
    flip_first_block(folder)
    store = open_store(str(folder), branch="", partition=0)
    with pytest.raises(StoreDamaged) as kept:
        store.digest()
    store.close()
    open_store(str(folder), branch="", partition=0).close()
    assert kept.value.__cause__ is not None


def test_a_flipped_byte_never_changes_what_is_read(folder: Path) -> None:
    """Any byte of any SST: reading fails, or gives what was written."""
    want = read_all(folder)
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    for _ in range(25):
        sst = draw.choice(sorted(folder.glob("*.sst")))
        kept, at = sst.read_bytes(), draw.randrange(sst.stat().st_size)
        flip(sst, at)
        try:
            found = read_all(folder)
        except StoreDamaged:
            found = want
        assert found == want, f"seed {seed}: {sst.name} byte {at}"
        sst.write_bytes(kept)
