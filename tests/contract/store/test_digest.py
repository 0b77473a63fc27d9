"""The digest is of content alone: equal in every kind of store, and different for different content."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.stores import KINDS, open_kind

from rewindq.engine.ports.store import Delete, Family, Put

CONTENT = [
    *(Put(family, b"k", b"v", 3 if family.versioned else None) for family in Family),
    Put(Family.JOBS, b"k\x00", b"w", 2**63),
    Put(Family.PAYLOADS, b"", b""),
]


def digest(kind: str, folder: Path, changes: list[Put | Delete], skip: tuple[bytes, ...] = ()) -> str:
    store = open_kind(kind, folder)
    store.write(changes)
    found = store.digest(skip=skip)
    store.close()
    return found


def test_it_is_equal_in_all_kinds(tmp_path: Path) -> None:
    assert len({digest(kind, tmp_path / kind, CONTENT) for kind in KINDS}) == 1


def test_it_does_not_change_between_versions(tmp_path: Path) -> None:
    want = "e5bcd381ce249815d60f0dfe3353993dc48b188e3687f91db0c5f21961215f1d"
    assert digest("memory", tmp_path, CONTENT) == want


def test_the_way_to_the_content_does_not_count(tmp_path: Path) -> None:
    detour = [*reversed(CONTENT), Put(Family.READY, b"x", b""), Delete(Family.READY, b"x"), CONTENT[0]]
    assert digest("rocks", tmp_path / "1", detour) == digest("memory", tmp_path / "2", CONTENT)


@pytest.mark.parametrize(
    "change",
    [
        Put(Family.PAYLOADS, b"k", b""),
        Put(Family.PAYLOADS, b"kv", b""),
        Put(Family.JOBS, b"k", b"v", 4),
        Delete(Family.READY, b"k"),
        Put(Family.TIMERS, b"k2", b"v"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_any_difference_shows(tmp_path: Path, kind: str, change: Put | Delete) -> None:
    assert digest(kind, tmp_path / "1", [*CONTENT, change]) != digest(kind, tmp_path / "2", CONTENT)


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_keys_are_metas_alone(tmp_path: Path, kind: str) -> None:
    positions = [Put(Family.META, b"positions", b"1")]
    skip = (b"positions",)
    assert digest(kind, tmp_path / "1", CONTENT + positions, skip) == digest(kind, tmp_path / "2", CONTENT, skip)
    assert digest(kind, tmp_path / "3", CONTENT + positions) != digest(kind, tmp_path / "4", CONTENT)
    other = [Put(Family.READY, b"positions", b"1")]
    assert digest(kind, tmp_path / "5", CONTENT + other, skip) != digest(kind, tmp_path / "6", CONTENT, skip)
