"""Quarantines: what a command decides, whatever comes again, and what follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.evolve import Moment
from rewindq.engine.core.quarantine import COMMANDS_MAX, decide_quarantine, evolve_quarantine, held_text

Command = e.QuarantineCommand | e.LiftCommand


def add(number: int, reason: str = "broken") -> e.QuarantineCommand:
    return e.QuarantineCommand(f"c{number}", reason, "ann", "charge")


def lift(number: int) -> e.LiftCommand:
    return e.LiftCommand(f"c{number}", "mended", "bob", "charge")


def after(*commands: Command) -> s.Quarantine | None:
    """The state when the commands came one a microsecond."""
    known: s.Quarantine | None = None
    for time, command in enumerate(commands, 100):
        for event in decide_quarantine(known, command):
            assert isinstance(event.body, e.QuarantineAdded | e.QuarantineLifted)
            known = evolve_quarantine(known, event.body, Moment(0, time, "w", "", 0, None, None))
    return known


def test_a_quarantine_holds_from_its_event_on_and_says_why() -> None:
    known = after(add(1))
    assert known == s.Quarantine(True, "broken", "ann", 100, ("c1",))
    assert held_text(known) == "type quarantined: broken"


def test_a_lift_ends_it() -> None:
    assert after(add(1), lift(2)) == s.Quarantine(False, "mended", "bob", 101, ("c1", "c2"))


def test_a_second_one_gives_the_new_reason_and_keeps_the_begin() -> None:
    known = after(add(1), add(2, "worse"))
    assert known is not None
    assert (known.active, known.reason, known.since) == (True, "worse", 100)


@pytest.mark.parametrize("again", [add(1), lift(2), add(3)])
def test_a_command_that_comes_again_changes_nothing(again: Command) -> None:
    assert decide_quarantine(after(add(1), lift(2), add(3)), again) == ()


def test_a_lift_before_anything_is_held_does_not_end_what_comes_later() -> None:
    known = after(lift(1), add(2), lift(1))
    assert known is not None
    assert known.active


def test_only_the_newest_command_ids_are_kept() -> None:
    known = after(*(add(number) for number in range(COMMANDS_MAX + 5)))
    assert known is not None
    assert (len(known.commands), known.commands[-1]) == (COMMANDS_MAX, f"c{COMMANDS_MAX + 4}")


@given(numbers=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30))
def test_the_newest_command_that_is_new_decides(numbers: list[tuple[int, bool]]) -> None:
    known = after(*(add(number) if adds else lift(number) for number, adds in numbers))
    first: dict[int, bool] = {}
    for number, adds in numbers:
        first.setdefault(number, adds)
    assert (known is not None and known.active) == (bool(first) and list(first.values())[-1])
