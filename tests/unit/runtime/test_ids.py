"""Ids made up by a process."""

from __future__ import annotations

from tests.support.clock import VirtualClock

from rewindq.engine.core.names import valid_job_id
from rewindq.engine.runtime.ids import new_id


def test_ids_sort_as_the_times_they_were_made_at() -> None:
    clock = VirtualClock()
    ids = []
    for _ in range(50):
        ids.append(new_id(clock))
        clock.advance(0.001)
    assert ids == sorted(ids)
    assert {len(one) for one in ids} == {26}
    assert all(valid_job_id(one) for one in ids)


def test_ids_of_one_moment_differ() -> None:
    clock = VirtualClock()
    assert len({new_id(clock) for _ in range(1000)}) == 1000


def test_an_id_is_its_time_and_its_random_bits() -> None:
    clock = VirtualClock(now_us=32 * 1000)
    assert new_id(clock, entropy=lambda count: bytes(count - 1) + b"\x1f") == "0" * 8 + "10" + "0" * 15 + "z"
