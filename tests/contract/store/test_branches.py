"""What every branch promises, whatever it leaves from."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.stores import open_kind

from rewindq.engine.ports.store import Delete, Family, Put, Store, StoreError, Version

JOBS, PAYLOADS = Family.JOBS, Family.PAYLOADS


def put(key: bytes, seq: int, value: bytes) -> Put:
    return Put(JOBS, key, value, seq)


def test_a_branch_reads_its_base_as_of_its_position(base: Store, tmp_path: Path) -> None:
    base.write([put(b"a", 1, b"1"), put(b"a", 5, b"5"), put(b"late", 6, b"6")])
    branch = base.branch(str(tmp_path / "b"), 5)
    base.write([put(b"a", 9, b"9"), put(b"new", 9, b"9")])
    assert branch.latest(JOBS, b"a") == Version(5, b"5")
    assert branch.at(JOBS, b"a", 9) == Version(5, b"5")
    assert branch.at(JOBS, b"a", 4) == Version(1, b"1")
    assert [version.seq for version in branch.history(JOBS, b"a")] == [1, 5]
    assert branch.latest(JOBS, b"late") is None
    assert list(branch.keys(JOBS)) == [b"a"]
    branch.close()
    assert base.latest(JOBS, b"a") == Version(9, b"9")


def test_what_a_branch_writes_stays_in_it(base: Store, tmp_path: Path) -> None:
    base.write([put(b"a", 5, b"base"), put(b"c", 5, b"base")])
    before = base.digest()
    branch = base.branch(str(tmp_path / "b"), 5)
    branch.write([put(b"a", 6, b"own"), put(b"b", 7, b"own"), put(b"c", 5, b"own"), put(b"c", 3, b"own")])
    assert branch.latest(JOBS, b"a") == Version(6, b"own")
    assert branch.at(JOBS, b"a", 5) == Version(5, b"base")
    assert list(branch.keys(JOBS)) == [b"a", b"b", b"c"]
    assert list(branch.history(JOBS, b"a", reverse=True)) == [Version(6, b"own"), Version(5, b"base")]
    assert list(branch.history(JOBS, b"c")) == [Version(3, b"own"), Version(5, b"own")]
    assert list(branch.history(JOBS, b"c", reverse=True)) == [Version(5, b"own"), Version(3, b"own")]
    assert branch.latest(JOBS, b"c") == branch.at(JOBS, b"c", 9) == Version(5, b"own")
    assert branch.at(JOBS, b"c", 4) == Version(3, b"own")
    assert base.digest() == before
    branch.close()


def test_an_older_own_value_does_not_hide_a_newer_one_of_the_base(base: Store, tmp_path: Path) -> None:
    base.write([put(b"a", 5, b"base")])
    branch = base.branch(str(tmp_path / "b"), 5)
    branch.write([put(b"a", 3, b"own")])
    assert branch.latest(JOBS, b"a") == Version(5, b"base")
    branch.close()


@pytest.mark.parametrize("family", [PAYLOADS, Family.TRACES, Family.MARKS])
def test_payloads_and_traces_show_through(base: Store, tmp_path: Path, family: Family) -> None:
    base.write([Put(family, key, b"base") for key in (b"a", b"b", b"c", b"d")])
    branch = base.branch(str(tmp_path / "b"), 0)
    branch.write([Put(family, b"b", b"own"), Delete(family, b"c"), Put(family, b"e", b"own"), Delete(family, b"x")])
    assert [branch.get(family, key) for key in (b"a", b"b", b"c", b"e", b"x")] == [b"base", b"own", None, b"own", None]
    shown = [(b"a", b"base"), (b"b", b"own"), (b"d", b"base"), (b"e", b"own")]
    assert list(branch.scan(family)) == shown
    assert list(branch.scan(family, start=b"b", limit=2)) == shown[1:3]
    branch.write([Put(family, b"c", b"")])
    assert branch.get(family, b"c") == b""
    assert base.get(family, b"c") == b"base"
    branch.close()


@pytest.mark.parametrize("family", [Family.READY, Family.TIMERS, Family.RUNNING, Family.META])
def test_the_branchs_private_families_start_empty(base: Store, tmp_path: Path, family: Family) -> None:
    base.write([Put(family, b"a", b"base")])
    branch = base.branch(str(tmp_path / "b"), 9)
    assert branch.get(family, b"a") is None
    assert list(branch.scan(family)) == []
    branch.write([Put(family, b"b", b"own")])
    assert list(branch.scan(family)) == [(b"b", b"own")]
    assert list(base.scan(family)) == [(b"a", b"base")]
    branch.close()


def test_a_branch_of_a_branch(base: Store, tmp_path: Path) -> None:
    base.write([put(b"a", 1, b"base"), put(b"a", 2, b"base")])
    first = base.branch(str(tmp_path / "1"), 1)
    first.write([put(b"a", 3, b"first"), put(b"a", 5, b"first"), Put(PAYLOADS, b"p", b"first")])
    second = first.branch(str(tmp_path / "2"), 4)
    second.write([put(b"a", 5, b"second")])
    assert list(second.history(JOBS, b"a")) == [Version(1, b"base"), Version(3, b"first"), Version(5, b"second")]
    assert second.get(PAYLOADS, b"p") == b"first"
    assert second.view(4).latest(JOBS, b"a") == Version(3, b"first")
    second.close()
    first.close()


def test_a_branchs_digest_is_of_its_own_content(base: Store, tmp_path: Path) -> None:
    one, two = base.branch(str(tmp_path / "1"), 0), base.branch(str(tmp_path / "2"), 7)
    changes = [put(b"a", 8, b"v"), Put(PAYLOADS, b"p", b"v"), Put(Family.META, b"m", b"v")]
    one.write(changes)
    base.write([put(b"b", 3, b"v"), Put(PAYLOADS, b"q", b"v")])
    two.write([*changes, Delete(PAYLOADS, b"q")])
    assert one.digest() == two.digest() != base.digest()
    base.write([Delete(PAYLOADS, b"q")])
    with_same = open_kind("memory", tmp_path)
    with_same.write(changes)
    assert one.digest() == with_same.digest()
    one.close()
    two.close()


def test_closing_a_branch_leaves_its_base_open(base: Store, tmp_path: Path) -> None:
    branch = base.branch(str(tmp_path / "b"), 0)
    branch.close()
    with pytest.raises(StoreError, match="closed"):
        branch.get(PAYLOADS, b"k")
    base.write([Put(PAYLOADS, b"k", b"v")])
    assert base.get(PAYLOADS, b"k") == b"v"


def test_a_branch_of_a_closed_base_says_so(base: Store, tmp_path: Path) -> None:
    branch = base.branch(str(tmp_path / "b"), 0)
    base.close()
    with pytest.raises(StoreError, match="closed"):
        branch.latest(JOBS, b"k")
    branch.close()
