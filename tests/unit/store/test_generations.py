"""A partition's generations while several processes take the partition over, freeze and clean at once."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rewindq.engine.ports.store import Family, Put, Store, StoreInUse
from rewindq.engine.store import generations, opener
from rewindq.engine.store.lock import FolderLock

META = Family.META


def _open(folder: Path) -> Store:
    return generations.open_current(folder, branch="", partition=3)


def _names(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir())


def _race(folder: str, start: multiprocessing.synchronize.Barrier, answers: multiprocessing.Queue[str]) -> None:
    start.wait()
    for _ in range(5):
        try:
            store = _open(Path(folder))
        except StoreInUse:
            answers.put("in use")
        except BaseException as error:
            answers.put(f"{type(error).__name__}: {error}")
        else:
            generations.clean(Path(folder))
            store.close()
            answers.put("opened")


@pytest.mark.process
def test_processes_that_begin_at_once_make_one_store_and_no_error(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_race, args=(str(tmp_path / "p3"), start, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=60) for _ in range(20)]
    for process in processes:
        process.join(60)
    assert set(told) <= {"opened", "in use"} and "opened" in told
    generations.clean(tmp_path / "p3")
    assert _names(tmp_path / "p3") == ["g1"]


def test_a_second_maker_uses_the_first_ones_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, make = threading.Barrier(2), opener.make

    def together(folder: Path, *, branch: str, partition: int) -> None:
        make(folder, branch=branch, partition=partition)
        both.wait(20)  # each has seen that there is no generation yet

    monkeypatch.setattr(opener, "make", together)

    def take(_: int) -> Store | None:
        try:
            return _open(tmp_path)
        except StoreInUse:
            return None

    with ThreadPoolExecutor(2) as pool:
        taken = [store for store in pool.map(take, range(2)) if store is not None]
    assert len(taken) == 1
    assert _names(tmp_path) == ["g1"]
    taken[0].close()


def test_a_store_appears_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = opener.make

    def cut_short(folder: Path, *, branch: str, partition: int) -> None:
        make(folder, branch=branch, partition=partition)
        assert not (tmp_path / "g1").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(opener, "make", cut_short)
        with pytest.raises(KeyboardInterrupt):
            _open(tmp_path)
    assert _names(tmp_path) == []
    _open(tmp_path).close()


def _freeze(folder: Path) -> tuple[Store, Store]:
    """An owner that keeps its store open, and its successor in a copy."""
    frozen = _open(folder)
    frozen.write([Put(META, b"k", b"v")])
    with pytest.raises(StoreInUse):
        _open(folder)
    generations.succeed(folder)
    return frozen, _open(folder)


def test_a_frozen_owner_is_passed_by_in_a_copy_that_is_cleaned_up_once_it_has_gone(tmp_path: Path) -> None:
    frozen, successor = _freeze(tmp_path)
    assert successor.get(META, b"k") == b"v"
    generations.clean(tmp_path)
    assert _names(tmp_path) == ["g1", "g2"]
    assert frozen.get(META, b"k") == b"v"
    frozen.close()
    generations.clean(tmp_path)
    assert _names(tmp_path) == ["g2"]
    successor.close()


def test_an_owner_that_wakes_late_never_removes_or_replaces_its_successors_store(tmp_path: Path) -> None:
    frozen, successor = _freeze(tmp_path)
    successor.close()  # nobody holds g2 at this moment
    generations.clean(tmp_path)
    generations.succeed(tmp_path)  # as of g2: what the frozen one saw was g1
    assert _names(tmp_path) == ["g1", "g2", "g3"]
    frozen.close()
    later = _open(tmp_path)
    assert later.get(META, b"k") == b"v"
    later.close()


def test_two_successors_at_once_share_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = _open(tmp_path)
    both, copy = threading.Barrier(2), generations._copy

    def together(old: Path, new: Path) -> None:
        copy(old, new)
        both.wait(20)

    monkeypatch.setattr(generations, "_copy", together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(generations.succeed, [tmp_path] * 2))
    assert _names(tmp_path) == ["g1", "g2"]
    frozen.close()


def test_a_draft_in_the_making_is_left_alone_and_one_of_a_dead_process_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "draft-dead"
    dead.mkdir()
    (dead / "writer.lock").touch()
    make = opener.make

    def watched(folder: Path, *, branch: str, partition: int) -> None:
        generations.clean(tmp_path)
        make(folder, branch=branch, partition=partition)

    monkeypatch.setattr(opener, "make", watched)
    _open(tmp_path).close()
    assert _names(tmp_path) == ["g1"]


def test_a_damaged_store_is_set_aside_under_its_lock_and_an_empty_one_goes_on(tmp_path: Path) -> None:
    _open(tmp_path).close()
    (tmp_path / "g1" / "CURRENT").unlink()
    store = _open(tmp_path)
    assert list(store.scan(META)) == []
    assert _names(tmp_path) == ["g1.damaged-1", "g2"]
    store.close()


def _vanish(folder: Path) -> None:
    generations.succeed(folder)
    generations.clean(folder)


@pytest.mark.parametrize("meanwhile", [_vanish, generations.succeed])
def test_who_looked_before_the_store_moved_on_uses_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]
) -> None:
    _open(tmp_path).close()
    held = FolderLock.take(tmp_path / "g1") if meanwhile is generations.succeed else None
    open_store, once = opener.open_store, [meanwhile]

    def late(path: str, *, branch: str, partition: int, create: bool = True) -> Store:
        while once:
            once.pop()(tmp_path)
        return open_store(path, branch=branch, partition=partition, create=create)

    monkeypatch.setattr(opener, "open_store", late)
    store = _open(tmp_path)
    assert "g2" in _names(tmp_path) and (tmp_path / "g2" / "owner.json").exists()
    store.close()
    if held is not None:
        held.free()
