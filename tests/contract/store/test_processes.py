"""Stores that real processes own: killed, read by others, opened twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import store_process
from tests.support.store_process import POSITION, written

from rewindq.engine.ports.store import Family, Put, StoreError, StoreInUse
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.opener import new_overlay, open_overlay_reader, open_reader, open_store, set_aside

pytestmark = pytest.mark.process


@contextmanager
def owner(folder: Path, *, synced: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the store in `folder`, opened."""
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, store_process.__file__, str(folder), str(int(synced))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def step(process: subprocess.Popen[str]) -> int:
    """Lets the owner write one batch; its number."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def expected_digest(last: int) -> str:
    store = MemoryStore()
    written(store, last)
    return store.digest()


def test_a_killed_owner_leaves_a_prefix_that_its_position_names(tmp_path: Path) -> None:
    acknowledged = position = 0
    for kill_after in (1, 40, 200):
        with owner(tmp_path / "s", synced=False) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                acknowledged = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        store = open_store(str(tmp_path / "s"), branch="", partition=0)
        position = int(store.get(Family.META, POSITION) or b"0")
        found = store.digest()
        store.close()
        assert position >= acknowledged  # the kernel keeps what a killed process wrote
        assert found == expected_digest(position)
    assert position > 240


def test_a_cut_log_tail_loses_whole_batches_only(tmp_path: Path) -> None:
    with owner(tmp_path / "s", synced=True) as process:
        for _ in range(20):
            step(process)
        process.kill()
        process.wait()
    [log] = [path for path in (tmp_path / "s").glob("*.log") if path.stat().st_size]
    size = log.stat().st_size
    positions = []
    for cut in (size - 1, size * 2 // 3, size // 3):
        os.truncate(log, cut)
        reader = open_reader(str(tmp_path / "s"))
        positions.append(int(reader.get(Family.META, POSITION) or b"0"))
        assert reader.digest() == expected_digest(positions[-1])
        reader.close()
    assert 19 == positions[0] > positions[1] > positions[2] > 0
    store = open_store(str(tmp_path / "s"), branch="", partition=0)
    assert store.digest() == expected_digest(positions[2])
    store.close()


def test_a_reader_follows_a_live_owner(tmp_path: Path) -> None:
    with owner(tmp_path / "s", synced=True) as process:
        assert step(process) == 1
        reader = open_reader(str(tmp_path / "s"))
        assert not list((tmp_path / "s").glob("*.sst")), "it is the write-ahead log that has to be read"
        assert reader.digest() == expected_digest(1)
        for number in (2, 3):
            assert step(process) == number
            assert reader.get(Family.META, POSITION) == b"%d" % (number - 1)
            reader.refresh()
            assert reader.get(Family.META, POSITION) == b"%d" % number
            assert reader.digest() == expected_digest(number)
        assert reader.view(2).latest(Family.JOBS, b"job-0") == reader.at(Family.JOBS, b"job-0", 2)
        reader.close()


def test_a_reader_keeps_up_with_flushes_and_compactions(tmp_path: Path) -> None:
    with owner(tmp_path / "s", synced=False) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = open_reader(str(tmp_path / "s"))
        before = 0
        while before < 2500:
            told = [int(process.stdout.readline()) for _ in range(100)][-1]
            reader.refresh()
            position = int(reader.get(Family.META, POSITION) or b"0")
            # What was told was written before; the reader may have seen more, long ago.
            assert position >= max(told, before)
            before = position
            seen = reader.latest(Family.JOBS, b"job-7")
            assert seen is not None
            assert seen.seq == position
            assert sum(1 for _ in reader.history(Family.JOBS, b"job-7")) == position
        assert list((tmp_path / "s").glob("*.sst"))
        reader.close()


def test_a_reader_needs_no_owner_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    store = open_store(str(tmp_path / "s"), branch="", partition=0)
    written(store, 3)
    store.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    reader = open_reader(str(tmp_path / "s"))
    assert reader.digest() == expected_digest(3)
    assert list(scratch.iterdir())
    reader.close()
    assert list(scratch.iterdir()) == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before
    with pytest.raises(StoreError, match="closed"):
        reader.refresh()


def test_a_reader_follows_an_owner_that_came_later(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    open_store(path, branch="", partition=0).close()
    reader = open_reader(path)
    store = open_store(path, branch="", partition=0)
    written(store, 2)
    reader.refresh()
    assert reader.digest() == expected_digest(2)
    store.close()
    reader.refresh()
    assert reader.digest() == expected_digest(2)
    reader.close()


def test_a_reader_finds_the_store_that_was_rebuilt_in_its_place(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    store = open_store(path, branch="", partition=0)
    written(store, 5)
    reader = open_reader(path)
    store.close()
    set_aside(path)
    store = open_store(path, branch="", partition=0)
    written(store, 2)
    reader.refresh()
    assert reader.digest() == expected_digest(2)
    reader.close()
    store.close()


def test_a_reader_says_when_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        open_reader(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_branch_over_a_base_that_goes_on(tmp_path: Path) -> None:
    with owner(tmp_path / "s", synced=True) as process:
        for _ in range(3):
            step(process)
        base = open_reader(str(tmp_path / "s"))
        overlay = new_overlay(str(tmp_path / "b"), base, 2)
        overlay.write([Put(Family.JOBS, b"own", b"v", 9)])
        reader = open_overlay_reader(str(tmp_path / "b"), base, 2)
        step(process)
        base.refresh()
        assert [version.seq for version in reader.history(Family.JOBS, b"job-1")] == [1, 2]
        assert reader.digest() == overlay.digest()
        overlay.write([Put(Family.JOBS, b"own", b"v", 10)])
        assert reader.latest(Family.JOBS, b"own") == (9, b"v")
        reader.refresh()
        assert reader.latest(Family.JOBS, b"own") == (10, b"v")
        nested = new_overlay(str(tmp_path / "nested"), reader, 9)
        assert nested.latest(Family.JOBS, b"own") == (9, b"v")
        nested.close()
        reader.close()
        overlay.close()
        base.close()


def test_a_second_owner_is_refused_and_the_first_named(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with owner(tmp_path / "s", synced=True) as process:
        with pytest.raises(StoreInUse, match=rf"process {process.pid}\b"):
            open_store(path, branch="", partition=0)
        with pytest.raises(StoreInUse, match=rf"process {process.pid}\b"):
            set_aside(path)
        assert step(process) == 1
        process.kill()
        process.wait()
        kept = set_aside(path)  # the note of a killed owner is not believed
        Path(kept).rename(path)
        note = tmp_path / "s" / "owner.json"
        note.write_text(note.read_text().replace(str(process.pid), str(os.getpid())))
        Path(set_aside(path)).rename(path)  # nor one whose number now belongs to a process that began later
        store = open_store(path, branch="", partition=0)
        with pytest.raises(StoreInUse, match=rf"process {os.getpid()}\b"):
            open_store(path, branch="", partition=0)
        store.close()
    open_store(path, branch="", partition=0).close()
