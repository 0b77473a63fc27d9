"""Kept cancels: found by job, bounded, the oldest one going first."""

from __future__ import annotations

import pytest

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.working import WorkingSet


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> WorkingSet:
    monkeypatch.setattr(s, "KEPT_CANCELS_MAX", 2)
    return WorkingSet(MemoryStore())


def keep(states: WorkingSet, *jobs: str) -> None:
    for job_id in jobs:
        states.keep_cancel(job_id, e.CancelKept("r", "me", f"c-{job_id}"))


def kept(states: WorkingSet, *jobs: str) -> list[str]:
    return [job_id for job_id in jobs if states.cancels.of(job_id) is not None]


def test_the_oldest_goes_first(states: WorkingSet) -> None:
    keep(states, "a", "b")
    oldest = states.cancels.oldest_to_drop()
    assert oldest is not None
    assert oldest.command_id == "c-a"
    keep(states, "c")
    assert kept(states, "a", "b", "c") == ["b", "c"]


def test_one_that_was_kept_anew_stands_at_its_new_place_alone(states: WorkingSet) -> None:
    keep(states, "a", "a")
    assert states.cancels.oldest_to_drop() is None
    keep(states, "b")
    assert kept(states, "a", "b") == ["a", "b"]


def test_one_that_was_carried_out_takes_no_place(states: WorkingSet) -> None:
    keep(states, "a", "b")
    states.drop_cancel("a")
    assert kept(states, "a", "b") == ["b"]
    assert states.cancels.oldest_to_drop() is None
    states.drop_cancel("never")
