"""What every store promises."""

from __future__ import annotations

import pytest

from rewindq.engine.ports.store import Delete, Family, Put, Store, StoreError, Version

JOBS, META, READY = Family.JOBS, Family.META, Family.READY


def put(key: bytes, seq: int, value: bytes = b"v", family: Family = JOBS) -> Put:
    return Put(family, key, value, seq)


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.get(META, b"k") is None
    assert store.latest(JOBS, b"k") is None
    assert store.at(JOBS, b"k", 10) is None
    assert list(store.history(JOBS, b"k")) == []
    assert list(store.scan(READY)) == []
    assert list(store.keys(JOBS)) == []


def test_plain_keys_hold_one_value(store: Store) -> None:
    for family in (META, READY, Family.PAYLOADS, Family.TRACES):
        store.write(
            [Put(family, b"k", b"1"), Put(family, b"k", b"2"), Put(family, b"gone", b"1"), Delete(family, b"gone")]
        )
        assert store.get(family, b"k") == b"2"
        assert store.get(family, b"gone") is None
        store.write([Delete(family, b"k"), Delete(family, b"never")])
        assert store.get(family, b"k") is None
        assert list(store.scan(family)) == []


def test_changes_of_a_batch_apply_in_order(store: Store) -> None:
    store.write([Delete(META, b"k"), Put(META, b"k", b"1"), Delete(META, b"k"), Put(META, b"k", b"2")])
    assert store.get(META, b"k") == b"2"


def test_families_do_not_mix(store: Store) -> None:
    store.write([Put(family, b"k", family.encode(), 1 if family.versioned else None) for family in Family])
    for family in Family:
        found = store.latest(family, b"k") if family.versioned else Version(1, store.get(family, b"k") or b"")
        assert found == Version(1, family.encode())


def test_empty_keys_and_values_are_kept(store: Store) -> None:
    store.write([Put(READY, b"", b""), Put(Family.PAYLOADS, b"", b""), put(b"", 0, b"")])
    assert store.get(READY, b"") == b""
    assert store.get(Family.PAYLOADS, b"") == b""
    assert store.latest(JOBS, b"") == Version(0, b"")
    assert list(store.scan(READY)) == [(b"", b"")]
    assert list(store.keys(JOBS)) == [b""]


def test_versions_are_read_by_position(store: Store) -> None:
    store.write([put(b"k", 20, b"b"), put(b"k", 10, b"a"), put(b"k", 300, b"c")])
    assert store.latest(JOBS, b"k") == Version(300, b"c")
    assert [store.at(JOBS, b"k", seq) for seq in (-1, 9, 10, 19, 20, 299, 300, 2**64 - 1, 2**70)] == [
        None,
        None,
        Version(10, b"a"),
        Version(10, b"a"),
        Version(20, b"b"),
        Version(20, b"b"),
        Version(300, b"c"),
        Version(300, b"c"),
        Version(300, b"c"),
    ]


def test_a_position_written_again_replaces_its_value(store: Store) -> None:
    store.write([put(b"k", 1, b"a")])
    store.write([put(b"k", 1, b"b")])
    assert list(store.history(JOBS, b"k")) == [Version(1, b"b")]


def test_history_bounds_are_inclusive(store: Store) -> None:
    store.write([put(b"k", seq, b"%d" % seq) for seq in (0, 3, 5, 2**64 - 1)] + [put(b"j", 4), put(b"l", 4)])

    def seqs(**bounds: int | bool | None) -> list[int]:
        return [version.seq for version in store.history(JOBS, b"k", **bounds)]  # type: ignore[arg-type]

    assert seqs() == [0, 3, 5, 2**64 - 1]
    assert seqs(reverse=True) == [2**64 - 1, 5, 3, 0]
    assert seqs(first=3, last=5) == [3, 5]
    assert seqs(first=4, last=4) == []
    assert seqs(first=-5, last=4, reverse=True) == [3, 0]
    assert seqs(first=4, last=2**70, reverse=True) == [2**64 - 1, 5]
    assert seqs(first=6, last=5) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_long_histories_cross_chunks(store: Store, reverse: bool) -> None:
    count = 5000
    store.write([put(b"k", seq, b"%d" % seq) for seq in range(count)])
    want = [Version(seq, b"%d" % seq) for seq in range(count)]
    assert list(store.history(JOBS, b"k", reverse=reverse)) == (want[::-1] if reverse else want)


def test_long_scans_cross_chunks(store: Store) -> None:
    for family in (READY, Family.TRACES):
        want = [(b"%06d" % number, b"v") for number in range(5000)]
        store.write([Put(family, key, value) for key, value in want])
        assert list(store.scan(family)) == want
        assert list(store.scan(family, limit=3000)) == want[:3000]
    store.write([put(key, 1) for key, _ in want])
    assert list(store.keys(JOBS)) == [key for key, _ in want]


def test_a_scan_follows_prefix_start_and_limit(store: Store) -> None:
    for family in (READY, Family.PAYLOADS):
        store.write(
            [Put(family, key, b"v") for key in (b"a", b"b", b"b\x00", b"b\xff", b"b\xff\xff", b"c", b"\xff\xff")]
        )

        def keys(prefix: bytes = b"", **rest: object) -> list[bytes]:
            return [key for key, _ in store.scan(family, prefix, **rest)]  # type: ignore[arg-type]  # noqa: B023

        assert keys(b"b") == [b"b", b"b\x00", b"b\xff", b"b\xff\xff"]
        assert keys(b"b\xff") == [b"b\xff", b"b\xff\xff"]
        assert keys(b"\xff") == [b"\xff\xff"]
        assert keys(b"b", start=b"b\x01") == [b"b\xff", b"b\xff\xff"]
        assert keys(b"b", start=b"a", limit=2) == [b"b", b"b\x00"]
        assert keys(b"b", start=b"c") == []
        assert keys(limit=0) == []
        assert keys(start=b"c") == [b"c", b"\xff\xff"]


def test_keys_that_contain_each_other_do_not_mix(store: Store) -> None:
    family = Family.AGGREGATES
    names = sorted(
        [b"a", b"a\x00", b"a\x00\x01", b"a\x00\xff", b"a\x01", b"ab", b"\x00", b"\x00\x00", b"", b"a" + b"\xff" * 9]
    )
    store.write([put(name, seq, b"%d" % at, family) for at, name in enumerate(names) for seq in (5, 2**63)])
    assert list(store.keys(family)) == names
    assert list(store.keys(family, b"a\x00")) == [name for name in names if name.startswith(b"a\x00")]
    for at, name in enumerate(names):
        assert store.at(family, name, 7) == Version(5, b"%d" % at)
        assert store.at(family, name, 4) is None
        assert len(list(store.history(family, name))) == 2


def test_a_view_shows_the_past(store: Store) -> None:
    store.write([put(b"a", 1, b"1"), put(b"a", 5, b"5"), put(b"b", 3, b"3"), Put(META, b"m", b"now")])
    view = store.view(2)
    store.write([put(b"a", 2, b"2")])
    assert view.latest(JOBS, b"a") == Version(2, b"2")
    assert view.at(JOBS, b"a", 100) == Version(2, b"2")
    assert view.at(JOBS, b"a", 1) == Version(1, b"1")
    assert [version.seq for version in view.history(JOBS, b"a", reverse=True)] == [2, 1]
    assert [version.seq for version in view.history(JOBS, b"a", last=1)] == [1]
    assert view.latest(JOBS, b"b") is None
    assert list(view.keys(JOBS)) == [b"a"]
    assert view.get(META, b"m") == b"now"
    assert list(view.scan(META)) == [(b"m", b"now")]


@pytest.mark.parametrize(
    "bad",
    [
        Put(Family.JOBS, b"k", b"v"),
        Put(Family.META, b"k", b"v", 1),
        Put(Family.JOBS, b"k", b"v", -1),
        Put(Family.JOBS, b"k", b"v", 2**64),
        Delete(Family.JOBS, b"k"),
    ],
)
def test_a_batch_with_a_bad_change_changes_nothing(store: Store, bad: Put | Delete) -> None:
    with pytest.raises(ValueError, match=r"seq|versioned|plain"):
        store.write([Put(META, b"before", b"v"), bad, Put(META, b"after", b"v")])
    assert list(store.scan(META)) == []
    assert list(store.keys(JOBS)) == []


def test_the_wrong_kind_of_family_is_refused_by_name(store: Store) -> None:
    with pytest.raises(ValueError, match="jobs is versioned"):
        store.get(JOBS, b"k")
    with pytest.raises(ValueError, match="jobs is versioned"):
        list(store.scan(JOBS))
    with pytest.raises(ValueError, match="meta is plain"):
        store.latest(META, b"k")
    with pytest.raises(ValueError, match="meta is plain"):
        list(store.history(META, b"k"))
    with pytest.raises(ValueError, match="meta is plain"):
        list(store.keys(META))


def test_a_closed_store_says_so_and_closes_twice(store: Store) -> None:
    store.write([Put(READY, b"%04d" % number, b"v") for number in range(3000)])
    under_way = store.scan(READY)
    assert next(under_way) == (b"0000", b"v")
    store.close()
    store.close()
    for call in (
        lambda: list(under_way),
        lambda: store.get(META, b"k"),
        lambda: store.latest(JOBS, b"k"),
        lambda: list(store.history(JOBS, b"k")),
        lambda: list(store.keys(JOBS)),
        lambda: list(store.scan(META)),
        lambda: store.write([Put(META, b"k", b"v")]),
        lambda: store.digest(),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_a_scan_survives_changes_of_what_it_reads(store: Store) -> None:
    store.write([Put(READY, b"%04d" % number, b"v") for number in range(3000)])
    seen = []
    for key, _ in store.scan(READY):
        seen.append(key)
        store.write([Delete(READY, key)])
    assert seen == [b"%04d" % number for number in range(3000)]
    assert list(store.scan(READY)) == []


def test_what_is_deleted_ahead_of_a_scan_ends_it_early_at_worst(store: Store) -> None:
    want = [b"%04d" % number for number in range(3000)]
    store.write([Put(READY, key, b"v") for key in want])
    under_way = store.scan(READY)
    seen = [next(under_way)[0]]
    store.write([Delete(READY, key) for key in want])
    seen += [key for key, _ in under_way]
    assert seen == want[: len(seen)]
    assert len(seen) < len(want)
