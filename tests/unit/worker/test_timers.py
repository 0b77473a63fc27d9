"""Due times: each comes up when its time has come, whether it is in memory or in the store only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindq.engine.core.state import timer_key
from rewindq.engine.ports.store import Delete, Family, Put
from rewindq.engine.store.memory import MemoryStore
from rewindq.processors.worker import timers as module
from rewindq.processors.worker.timers import HORIZON, Timers

NOW = 1_790_000_000_000_000
SECOND = 1_000_000


def stored(*dues: int) -> MemoryStore:
    store = MemoryStore()
    store.write([Put(Family.TIMERS, timer_key(due, f"job{at}"), b"") for at, due in enumerate(dues)])
    return store


def test_what_is_due_comes_up_once_in_order() -> None:
    timers = Timers(stored(NOW + 5 * SECOND, NOW, NOW - 1, NOW + 1))

    assert timers.due(NOW) == [(NOW - 1, "job2"), (NOW, "job1")]
    assert timers.due(NOW) == []
    assert timers.next_due() == NOW + 1
    assert timers.due(NOW + 5 * SECOND) == [(NOW + 1, "job3"), (NOW + 5 * SECOND, "job0")]
    assert timers.next_due() is None


def test_a_job_whose_delay_is_not_stored_yet_comes_up() -> None:
    timers = Timers(MemoryStore())
    timers.due(NOW)
    timers.add(NOW + SECOND, "new")
    timers.add(NOW + SECOND, "new")

    assert timers.due(NOW + SECOND) == [(NOW + SECOND, "new")]


def test_a_delay_of_the_first_turn_comes_up_in_time() -> None:
    timers = Timers(MemoryStore())
    timers.add(NOW + SECOND, "new")
    timers.due(NOW)

    assert timers.due(NOW + SECOND) == [(NOW + SECOND, "new")]


def test_a_far_due_time_is_left_to_the_store() -> None:
    store = MemoryStore()
    timers = Timers(store)
    timers.due(NOW)
    far = NOW + 10 * HORIZON
    timers.add(far, "far")
    assert timers.next_due() is None
    store.write([Put(Family.TIMERS, timer_key(far, "far"), b"")])
    for now in range(NOW, far, HORIZON // 4):
        assert timers.due(now) == []

    assert timers.due(far) == [(far, "far")]


@settings(max_examples=60)
@given(
    adds=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), max_size=30),
    stored_later=st.integers(0, 3),
    load_max=st.integers(1, 5),
)
def test_nothing_is_lost_or_early(adds: list[tuple[int, int]], stored_later: int, load_max: int) -> None:
    """Jobs are delayed at any second for any time; the store learns of it some seconds later, and forgets what ran."""
    store = MemoryStore()
    timers = Timers(store)
    waiting: dict[tuple[int, str], int] = {}
    pending: list[tuple[int, Put]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LOAD_MAX", load_max)
        for second in range(600):
            now = NOW + second * SECOND
            for at, (when, delay) in enumerate(adds):
                if when == second:
                    due = now + delay * SECOND
                    timers.add(due, f"job{at}")
                    waiting[due, f"job{at}"] = second
                    pending.append((second + stored_later, Put(Family.TIMERS, timer_key(due, f"job{at}"), b"")))
            store.write([put for when, put in pending if when == second])
            for due, job_id in timers.due(now):
                assert due <= now
                if waiting.pop((due, job_id), None) is not None:
                    pending = [(when, put) for when, put in pending if put.key != timer_key(due, job_id)]
                    store.write([Delete(Family.TIMERS, timer_key(due, job_id))])
            assert all(due > now - (stored_later + 1) * SECOND for due, _ in waiting), "a job is late"
    assert waiting == {}


def test_jobs_that_are_due_and_cannot_start_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay in the store until they start; more of them than are loaded at once."""
    monkeypatch.setattr(module, "LOAD_MAX", 3)
    store = stored(*[NOW - 10] * 8, NOW + SECOND)
    timers = Timers(store)
    found = set()
    for step in range(60):
        found |= {job_id for _, job_id in timers.due(NOW + step * SECOND)}

    assert found == {f"job{at}" for at in range(9)}


def test_an_early_stop_of_loading_leaves_nothing_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A far due time in memory does not make the near ones beyond the limit count as loaded."""
    monkeypatch.setattr(module, "LOAD_MAX", 2)
    timers = Timers(stored(*(NOW + at * SECOND for at in range(1, 9))))
    timers.due(NOW - HORIZON)
    timers.add(NOW + 50 * SECOND, "far")
    timers.due(NOW)

    for at in range(1, 9):
        assert (NOW + at * SECOND, f"job{at - 1}") in timers.due(NOW + at * SECOND)
