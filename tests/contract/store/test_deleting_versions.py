"""One stored value of a versioned key can be removed; what else is stored stays."""

from __future__ import annotations

from rewindq.engine.ports.store import Delete, Family, Put, Store, Version

KEYS = Family.IDEMPOTENCY


def test_one_version_goes_and_the_others_stay(store: Store) -> None:
    store.write([Put(KEYS, key, b"%d" % seq, seq) for key in (b"a", b"a\0", b"b") for seq in (1, 5, 9)])
    store.write([Delete(KEYS, b"a", 5), Delete(KEYS, b"a", 9), Delete(KEYS, b"a", 7), Delete(KEYS, b"never", 1)])
    assert store.latest(KEYS, b"a") == Version(1, b"1")
    assert list(store.history(KEYS, b"a\0")) == [Version(1, b"1"), Version(5, b"5"), Version(9, b"9")]
    assert list(store.keys(KEYS)) == [b"a", b"a\0", b"b"]


def test_a_key_without_versions_is_gone(store: Store) -> None:
    empty = store.digest()
    store.write([Put(KEYS, b"a", b"1", 1), Put(KEYS, b"a", b"2", 2)])
    store.write([Delete(KEYS, b"a", 1), Delete(KEYS, b"a", 2)])
    assert store.latest(KEYS, b"a") is None
    assert list(store.keys(KEYS)) == list(store.history(KEYS, b"a")) == []
    assert store.digest() == empty


def test_in_one_batch_the_order_counts(store: Store) -> None:
    store.write([Put(KEYS, b"a", b"1", 1), Delete(KEYS, b"a", 1), Put(KEYS, b"a", b"2", 2)])
    assert list(store.history(KEYS, b"a")) == [Version(2, b"2")]


def test_what_is_read_key_by_key_may_be_deleted_on_the_way(store: Store) -> None:
    names = [b"%03d" % n for n in range(100)]
    store.write([Put(KEYS, name, b"1", 1) for name in names])
    found = []
    for name in store.keys(KEYS):
        found.append(name)
        store.write([Delete(KEYS, name, 1)])
    assert found == names
    assert list(store.keys(KEYS)) == []
