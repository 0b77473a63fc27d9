"""Which keys jobs that are not over rely on, and what is dropped together with what is not written yet."""

from __future__ import annotations

from rewindq.engine.core import state as s
from rewindq.engine.ports.store import Family
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.working import WorkingSet

DONE = s.Idempotency(s.DONE, "d", "job", 1, "pay", b"1")


def opened(*keys: str) -> s.OpenEffects:
    return s.OpenEffects(False, {f"step-{key}": (key, False) for key in keys})


def write(states: WorkingSet, store: MemoryStore) -> None:
    turn, changes = states.collect()
    store.write(changes)
    states.stored(turn)


def test_keys_are_tied_as_stored_as_folded_and_as_changed_later() -> None:
    store = MemoryStore()
    states = WorkingSet(store)
    states.set_open_effects("old", opened("stored"))
    states.set_open_effects("ended", opened("gone"))
    write(states, store)
    states.set_open_effects("ended", None)
    states.set_open_effects("new", opened("folded"))
    tied = states.tie_keys()
    assert [key in tied for key in ("stored", "folded", "gone")] == [True, True, False]
    states.set_open_effects("old", opened("stored", "later"))
    states.set_open_effects("another", opened("later"))
    states.set_open_effects("old", None)
    assert [key in tied for key in ("stored", "later")] == [False, True]
    states.set_open_effects("another", None)
    assert "later" not in tied


def test_all_that_is_stored_or_about_to_be_goes_and_the_stub_stays() -> None:
    store = MemoryStore()
    states = WorkingSet(store)
    for key in ("a", "b", "kept"):
        states.set_idempotency(key, 1, DONE)
    write(states, store)
    states.set_idempotency("a", 2, DONE)
    stub = s.Idempotency(s.EXPIRED, "d", "job", 1, "pay")
    states.expire_idempotency(3, {"a": stub, "b": None})
    assert (states.idempotency_at("a"), states.idempotency_at("b")) == ((3, stub), None)
    write(states, store)
    assert [version.seq for version in store.history(Family.IDEMPOTENCY, b"a")] == [3]
    assert list(store.keys(Family.IDEMPOTENCY)) == [b"a", b"kept"]
    states.set_idempotency("b", 4, DONE)
    write(states, store)
    assert WorkingSet(store).idempotency_at("b") == (4, DONE)
