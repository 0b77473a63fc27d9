"""What becomes of instants, by the policy for missed ones; definitions that change."""

from __future__ import annotations

from datetime import UTC

import pytest

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.cron import DUE_MAX
from rewindq.engine.core.schedule import (
    Definition,
    Missed,
    decide_definition,
    decide_instants,
    evolve_planned,
    evolve_restart,
    evolve_set,
    instant_job_id,
)
from rewindq.engine.core.times import parse_time

T0 = parse_time("2026-11-29T10:00:00Z")
MINUTE = 60_000_000


def wanted(missed: Missed = "latest", expression: str = "*/5 * * * *") -> Definition:
    return Definition("tick", "work", expression, "UTC", UTC, missed)


def known(missed: Missed = "latest", last: int | None = None) -> s.Schedule:
    return s.Schedule("work", "*/5 * * * *", "UTC", missed, T0, last)


def planned(missed: Missed, minutes: float, last: int | None = None) -> list[tuple[int, bool, int]]:
    """Minute, whether its job runs, and how many were missed before it."""
    found = decide_instants(known(missed, last), wanted(missed), T0 + int(minutes * MINUTE))
    return [((one.instant - T0) // MINUTE, one.job_id is not None, one.missed) for one in found]


@pytest.mark.parametrize(
    ("missed", "minutes", "expected"),
    [
        ("latest", 4.9, []),
        ("latest", 5, [(5, True, 0)]),
        ("latest", 21, [(20, True, 3)]),
        ("all", 21, [(5, True, 0), (10, True, 0), (15, True, 0), (20, True, 0)]),
        ("none", 5.9, [(5, True, 0)]),
        ("none", 6.1, [(5, False, 0)]),
        ("none", 20.5, [(20, True, 3)]),
        ("none", 22, [(20, False, 3)]),
    ],
)
def test_missed_instants(missed: Missed, minutes: float, expected: list[tuple[int, bool, int]]) -> None:
    assert planned(missed, minutes) == expected


def test_instants_count_from_behind_the_last_one() -> None:
    assert planned("all", 21, T0 + 15 * MINUTE) == [(20, True, 0)]


@pytest.mark.parametrize("back", [0, 1, 120 * 60])
def test_time_that_goes_back_plans_nothing_twice(back: int) -> None:
    assert planned("all", 15 - back, T0 + 15 * MINUTE) == []


def test_all_is_bounded_and_says_so() -> None:
    found = decide_instants(known("all"), wanted("all"), T0 + (DUE_MAX + 7) * 5 * MINUTE)
    assert (len(found), found[0].missed, found[1].missed) == (DUE_MAX, 1, 0)
    assert found[-1].instant == T0 + (DUE_MAX + 7) * 5 * MINUTE


def test_the_job_id_names_the_instant() -> None:
    (one,) = decide_instants(known(), wanted(), T0 + 5 * MINUTE)
    assert one.job_id == instant_job_id("tick", T0 + 5 * MINUTE) == "cron:tick:2026-11-29T10:05:00Z"


def set_(events: tuple[e.Event, ...], before: s.Schedule | None = None) -> s.Schedule:
    (event,) = events
    assert isinstance(event.body, e.ScheduleSet)
    return evolve_set(before, event.body)


def test_a_new_schedule_counts_from_now_and_is_set_once() -> None:
    new = set_(decide_definition(None, wanted(), T0))
    assert new == known()
    assert decide_definition(new, wanted(), T0 + MINUTE) == ()


def test_another_rhythm_counts_from_its_change_and_another_policy_does_not() -> None:
    before = known(last=T0 + 5 * MINUTE)
    rhythm = set_(decide_definition(before, wanted(expression="0 * * * *"), T0 + 9 * MINUTE), before)
    assert (rhythm.since, rhythm.last) == (T0 + 9 * MINUTE, T0 + 5 * MINUTE)
    policy = set_(decide_definition(before, wanted("all"), T0 + 9 * MINUTE), before)
    assert (policy.since, policy.missed) == (T0, "all")


def test_a_missed_instant_keeps_the_newest_job() -> None:
    ran = evolve_planned(known(), e.InstantPlanned("tick", T0 + 5, "job", 0))
    assert evolve_planned(ran, e.InstantPlanned("tick", T0 + 10, None, 0)).job_id == "job"


def test_a_jump_that_is_taken_back_lets_instants_count_from_there() -> None:
    ahead = known(last=T0 + 10**12)
    assert evolve_restart(ahead, T0 + 7).last == T0 + 7
    assert evolve_restart(known(last=T0), T0 + 7).last == T0
