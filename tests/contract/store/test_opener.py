"""Opening, refusing and setting aside stores on disk."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.support.store_process import written

from rewindq.engine.ports.store import Family, Put, Store, StoreDamaged, StoreError, StoreFormat, StoreInUse
from rewindq.engine.store.opener import open_overlay, open_overlay_reader, open_reader, open_store, set_aside

META = Family.META


def opened(path: Path) -> Store:
    return open_store(str(path), branch="", partition=0)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_content_survives_reopening(tmp_path: Path) -> None:
    store = opened(tmp_path / "deep" / "s")
    written(store, 3)
    before = store.digest()
    store.close()
    store = opened(tmp_path / "deep" / "s")
    assert store.digest() == before
    store.close()


def test_a_newer_format_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s"
    opened(path).close()
    identity = json.loads((path / "identity.json").read_bytes())
    (path / "identity.json").write_text(json.dumps({"format": identity["format"] + 1, "unheard": "of"}))
    before = content(path)
    base = opened(tmp_path / "base")
    for opening in (
        lambda: opened(path),
        lambda: open_reader(str(path)),
        lambda: open_overlay(str(path), base, 1),
        lambda: base.branch(str(path), 1),
    ):
        with pytest.raises(StoreFormat, match="left as it is"):
            opening()
    base.close()
    assert content(path) == before


def test_another_partitions_or_branchs_store_is_refused(tmp_path: Path) -> None:
    open_store(str(tmp_path / "s"), branch="main", partition=3).close()
    before = content(tmp_path / "s")
    for branch, partition in (("main", 4), ("other", 3)):
        with pytest.raises(StoreError, match="belongs to partition 3 of branch 'main'"):
            open_store(str(tmp_path / "s"), branch=branch, partition=partition)
    assert content(tmp_path / "s") == before


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds files but no store"):
        opened(tmp_path)
    assert content(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(StoreError, match="cannot be"):
        opened(tmp_path / "notes.txt")


def test_an_interrupted_creation_is_carried_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    (path / "identity.json.new").write_text("{")
    opened(path).close()
    for file in path.iterdir():
        if file.name != "identity.json":
            file.unlink()
    store = opened(path)
    assert list(store.scan(META)) == []
    store.close()


def test_overlays_and_stores_are_not_taken_for_each_other(tmp_path: Path) -> None:
    base = opened(tmp_path / "s")
    base.branch(str(tmp_path / "b"), 7).close()
    for opening in (lambda: opened(tmp_path / "b"), lambda: open_reader(str(tmp_path / "b"))):
        with pytest.raises(StoreError, match="open_overlay"):
            opening()
    for over in (open_overlay, open_overlay_reader):
        with pytest.raises(StoreError, match="no branch's overlay"):
            over(str(tmp_path / "s"), base, 7)
        with pytest.raises(StoreError, match="leaves its base at 7, not at 8"):
            over(str(tmp_path / "b"), base, 8)
        with pytest.raises(StoreError, match="there is no store"):
            over(str(tmp_path / "none"), base, 7)
        reopened = over(str(tmp_path / "b"), base, 7)
        reopened.close()
    base.close()


def test_a_branch_never_lands_in_a_folder_that_is_taken(tmp_path: Path) -> None:
    base = opened(tmp_path / "s")
    base.branch(str(tmp_path / "b"), 7).close()
    for taken in ("b", "s"):
        with pytest.raises(StoreError, match="holds a store already"):
            base.branch(str(tmp_path / taken), 7)
    base.close()


def test_setting_aside_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for number in (1, 2):
        store = opened(path)
        written(store, number)
        with pytest.raises(StoreInUse, match="close it there"):
            set_aside(str(path))
        digest = store.digest()
        store.close()
        assert set_aside(str(path)) == f"{path}.damaged-{number}"
        assert not path.exists()
        kept = opened(tmp_path / f"s.damaged-{number}")
        assert kept.digest() == digest
        kept.close()
    with pytest.raises(StoreError, match="cannot be set aside"):
        set_aside(str(path))


def close_while(store: Store, work: object) -> list[BaseException]:
    """Runs `work` over and over in three threads, closes the store under them; what each thread ended with."""
    ended: list[BaseException] = []
    begun = threading.Barrier(4)

    def run() -> None:
        begun.wait()
        try:
            while True:
                work()  # type: ignore[operator]
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    store.get(META, b"k")
    store.close()
    for thread in threads:
        thread.join()
    return ended


@pytest.mark.parametrize("call", ["scan", "write", "latest", "keys"])
def test_closing_under_other_threads_ends_them_cleanly_and_frees_the_folder(tmp_path: Path, call: str) -> None:
    for _ in range(5):
        store = opened(tmp_path / "s")
        written(store, 20)
        work = {
            "scan": lambda: list(store.scan(Family.PAYLOADS)),  # noqa: B023
            "write": lambda: store.write([Put(META, b"%d" % n, b"v") for n in range(200)]),  # noqa: B023
            "latest": lambda: store.latest(Family.JOBS, b"job-1"),  # noqa: B023
            "keys": lambda: list(store.keys(Family.AGGREGATES)),  # noqa: B023
        }[call]
        ended = close_while(store, work)
        assert [type(error) for error in ended] == [StoreError] * 3
        assert all("closed" in str(error) for error in ended)
        opened(tmp_path / "s").close()  # the folder is free at once


def test_an_unreadable_identity_is_damage(tmp_path: Path) -> None:
    opened(tmp_path / "s").close()
    (tmp_path / "s" / "identity.json").write_bytes(b"\x00" * 20)
    with pytest.raises(StoreDamaged, match="set it aside and rebuild"):
        opened(tmp_path / "s")
