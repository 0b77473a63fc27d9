"""The time that schedules go by, under every way of setting the wall clock (CASES C45)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.timeline import Jump, Timeline, begin, look

S = 1_000_000
HOUR = 3600 * S
WALL = 1_790_000_000 * S


def walk(*steps: tuple[float, float], floor: int = 0) -> list[Timeline]:
    """The looks when time passes and the wall is set, `(seconds passed, seconds set)` each, one look a step."""
    wall, elapsed = WALL, 0
    found = [begin(wall, elapsed, floor)]
    for passed, set_by in steps:
        wall += round((passed + set_by) * S)
        elapsed += round(passed * S)
        found.append(look(found[-1], wall, elapsed)[0])
    return found


def test_without_a_jump_it_is_the_wall() -> None:
    assert all(one.now == one.wall for one in walk((0.5, 0), (0.001, 0), (600, 0), (0, 0)))


@pytest.mark.parametrize("set_by", [-2.0, -7200.0, -30 * 86_400.0])
def test_set_back_it_goes_on_a_little_slower(set_by: float) -> None:
    found = walk((1, 0), (1, set_by), *[(1, 0)] * 12)
    steps = {after.now - before.now for before, after in pairwise(found[2:9])}
    assert steps == {833_333}
    assert all(one.now >= before.now for before, one in pairwise(found))


def test_the_wall_catches_up() -> None:
    last = walk((1, -2), *[(1, 0)] * 13)[-1]
    assert last.now == last.wall


def test_a_little_ahead_is_caught_up_without_a_leap() -> None:
    found = walk((1, 0), (1, 2), *[(1, 0)] * 14)
    assert found[3].now - found[2].now == 1_166_666
    assert found[-1].now == found[-1].wall


def test_far_ahead_is_followed_at_once() -> None:
    assert (last := walk((1, 3600))[-1]).now == last.wall


def test_a_jump_is_told_once() -> None:
    _, jump = look(begin(WALL, 0, 0), WALL + HOUR, 0)
    assert jump == Jump(HOUR, None)
    assert look(begin(WALL, 0, 0), WALL + S, S) == (Timeline(WALL + S, S, WALL + S), None)


def test_a_jump_that_is_taken_back_restarts_from_the_wall() -> None:
    there = walk((1, 0), (1, 30 * 86_400), (10, 0))[-1]
    back, jump = look(there, WALL + 13 * S, 13 * S)
    assert jump == Jump(-30 * 86_400 * S, WALL + 13 * S)
    assert back.now == back.wall == WALL + 13 * S


def test_a_step_back_that_ends_behind_the_jump_is_none() -> None:
    there = walk((1, 3600), (7200, 0))[-1]
    _, jump = look(there, there.wall - 1800 * S, there.elapsed)
    assert jump == Jump(-1800 * S, None)


def test_it_begins_where_an_owner_with_a_clock_ahead_stopped() -> None:
    assert begin(WALL, 0, WALL + HOUR).now == WALL + HOUR


@given(steps=st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 50)), max_size=40))
def test_it_goes_back_only_when_a_jump_is_taken_back(steps: list[tuple[int, int]]) -> None:
    wall, elapsed, line = WALL, 0, begin(WALL, 0, 0)
    for passed, set_by in steps:
        wall, elapsed = wall + (passed + set_by) * S, elapsed + passed * S
        after, jump = look(line, wall, elapsed)
        assert after.now >= line.now or (jump is not None and jump.restart == after.now)
        assert after.now <= max(wall, line.now + passed * S * 7 // 6)
        line = after
