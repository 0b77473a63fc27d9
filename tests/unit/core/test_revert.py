"""What a revert brings back: exactly what stood before the job, and only where nobody else has written since."""

from __future__ import annotations

from typing import Any

import pytest
import tests.support.hypothesis_profile  # noqa: F401 - puts the profile in force
from hypothesis import given
from tests.support.reverting import KEY, STEPS, Aggregate, played

from rewindq.engine.core import events as e
from rewindq.engine.core import revert as r
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.revert import MISSING, Plan, decide_revert


def restored(plan: Plan) -> dict[str, Any]:
    return {one.field: one.old for one in plan.restored}


def kept(plan: Plan) -> dict[str, str | None]:
    return {one.field: one.write.version.job_id for one in plan.kept}


# --- examples ---


def test_a_field_goes_back_to_what_it_was_before_the_first_change() -> None:
    one = Aggregate()
    one.write("before", a=1, b=1)
    one.write("bad", a=2, new=1)
    one.write("bad", a=3, b=MISSING)
    plan, _ = one.revert("bad")
    assert (restored(plan), kept(plan)) == ({"a": 1, "b": 1, "new": MISSING}, {})
    assert one.now.data == {"a": 1, "b": 1}
    assert one.now.writer == "a revert of bad"


def test_a_write_of_somebody_else_keeps_its_field_alone() -> None:
    one = Aggregate()
    one.write("bad", a=1, b=1)
    one.write("later", b=1)
    plan, decided = one.revert("bad")
    assert (restored(plan), kept(plan), one.now.data) == ({"a": MISSING}, {"b": "later"}, {"b": 1})
    (told,) = values.decode(decided.refused)
    assert told == {
        "field": "b",
        "why": "later has written it since",
        "written_by": "later",
        "version": 2,
        "position": "p0@13",
    }


def test_a_write_between_the_jobs_own_is_not_undone_with_them() -> None:
    one = Aggregate()
    one.write("bad", total=5)
    one.write("good", total=8)
    one.write("bad", total=13)
    plan, _ = one.revert("bad")
    assert (restored(plan), kept(plan), one.now.data) == ({}, {"total": "good"}, {"total": 13})
    assert "between" in plan.kept[0].why


def test_what_made_no_difference_is_no_change_of_the_jobs() -> None:
    one = Aggregate()
    one.write("before", a=1, b=1)
    one.write("bad", a=1, b=2)
    one.write("later", a=5)
    plan, _ = one.revert("bad")
    assert (restored(plan), kept(plan)) == ({"b": 1}, {})
    one.write("round", b=7)
    one.write("round", b=1)
    assert one.plan("round") == Plan((), (), (), one.versions[-1][0])


def test_reverts_of_later_jobs_count_as_if_nothing_had_been_written() -> None:
    one = Aggregate()
    one.write("first", a=1)
    one.write("second", a=2, b=1)
    one.write("second", a=1)  # in the end it has left `a` as it was
    one.revert("second")
    plan, _ = one.revert("first")
    assert (restored(plan), kept(plan), one.now.data) == ({"a": MISSING}, {}, {})


def test_a_second_revert_changes_nothing_and_a_new_attempt_is_reverted_anew() -> None:
    one = Aggregate()
    one.write("before", a=1)
    one.write("bad", a=2)
    one.revert("bad")
    again, decided = one.revert("bad", command_id="d")
    assert (again.restored, again.kept, again.done, decided.versions) == ((), (), ("a",), 0)
    one.write("bad", attempt=2, a=3)
    plan, _ = one.revert("bad")
    assert (restored(plan), one.now.data) == ({"a": 1}, {"a": 1})


def test_values_that_look_alike_and_are_recorded_apart_are_a_change() -> None:
    one = Aggregate()
    one.write("before", a=1)
    one.write("bad", a=True)
    assert restored(one.plan("bad")) == {"a": 1}


def test_a_command_counts_once() -> None:
    one = Aggregate()
    one.write("bad", a=1)
    plan, decided = one.revert("bad")
    known = r.evolve_reverts(None, decided)
    command = e.RevertCommand("c", "r", "ann")
    assert decide_revert(KEY, ("bad", None), known, command, 1, plan, "p0") == ()
    for number in range(r.COMMANDS_MAX + 5):
        known = r.evolve_reverts(known, e.RevertDecided("", "", f"d{number}", None, 0, b"[]", 0))
    assert (len(known.commands), known.commands[-1]) == (r.COMMANDS_MAX, f"d{r.COMMANDS_MAX + 4}")


@pytest.mark.parametrize("status", sorted(s.ACTIVE))
def test_while_the_job_may_change_more_it_is_not_reverted(status: str) -> None:
    one = Aggregate()
    one.write("bad", a=1)
    command = e.RevertCommand("c", "r", "ann")
    (event,) = decide_revert(KEY, ("bad", s.JobState(status)), None, command, 1, one.plan("bad"), "p0")
    assert isinstance(event.body, e.RevertDecided)
    assert (event.status, event.body.versions) == ("fail", 0)
    assert f"is {status}" in (event.body.refusal or "")
    compensating = s.JobState(status, compensating=s.Failure("transient", "r"))
    assert "being undone" in (r.revert_refusal("bad", compensating) or "")


@pytest.mark.parametrize("status", [s.SUCCEEDED, s.CANCELLED, s.INVESTIGATION])
def test_an_ended_job_is_reverted(status: str) -> None:
    assert r.revert_refusal("bad", s.JobState(status)) is None


def test_large_values_are_brought_back_in_several_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "VERSION_BYTES_MAX", 250)
    one = Aggregate()
    one.write("before", **{f"f{number}": "x" * 100 for number in range(5)})
    before = one.now.data
    one.write("bad", **{f"f{number}": "y" for number in range(5)})
    _, decided = one.revert("bad")
    assert (decided.versions, one.now.data) == (3, before)
    again = one.plan("bad")
    assert (again.restored, again.kept, len(again.done)) == ((), (), 5)


def test_refused_fields_are_told_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "REFUSED_MAX", 2)
    one = Aggregate()
    one.write("bad", a=1, b=1, c=1)
    one.write("later", a=2, b=2, c=2)
    _, decided = one.revert("bad")
    assert (len(values.decode(decided.refused)), decided.refused_total) == (2, 3)


# --- any history ---


@given(STEPS)
def test_writes_alone_what_is_brought_back_is_what_the_others_wrote(steps: list[Any]) -> None:
    writes = [step for step in steps if step[0] == "write"]
    one = played(writes)
    before = one.now.data
    others = played([step for step in writes if step[1] != "bad"]).now.data
    last = {name: job_id for _, job_id, _, fields in writes for name in fields}
    plan, _ = one.revert("bad")
    for name in "abc":
        was, then = before.get(name, MISSING), one.now.data.get(name, MISSING)
        if name in restored(plan):
            assert last[name] == "bad", "only where the job wrote last"
            assert then is others.get(name, MISSING) or then == others[name], "as if the job had never written"
        else:
            assert then is was or then == was
        if last.get(name) != "bad":
            assert name not in restored(plan)
    assert not set(kept(plan).values()) & {"bad"}


@given(STEPS)
def test_among_other_reverts_a_field_is_brought_back_or_left_and_nothing_else(steps: list[Any]) -> None:
    one = played(steps)
    before, count = one.now.data, len(one.versions)
    plan, decided = one.revert("bad")
    wanted = {**before, **restored(plan)}
    assert one.now.data == {name: value for name, value in wanted.items() if value is not MISSING}
    assert {one.write.version.job_id for one in plan.kept}.isdisjoint({"bad"})
    assert len(one.versions) == count + decided.versions
    again, second = one.revert("bad", command_id="d")
    assert (again.restored, second.versions) == ((), 0), "twice is once"
    assert kept(again) == kept(plan)
    assert set(restored(plan)) <= set(again.done)


@given(STEPS)
def test_attempts_reverted_from_the_last_to_the_first_are_the_whole_job(steps: list[Any]) -> None:
    ordered = sorted((step for step in steps if step[0] == "write" and step[1] == "bad"), key=lambda step: step[2])
    base = [("write", "x", 1, {"a": 7, "b": 8})]
    whole, apart = played([*base, *ordered]), played([*base, *ordered])
    whole.revert("bad")
    apart.revert("bad", 2)
    plan, _ = apart.revert("bad", 1, command_id="d")
    assert whole.now.data == {"a": 7, "b": 8}
    # A value that the second attempt confirmed stays; whatever it changed is gone.
    confirmed = {one.field for one in plan.kept}
    assert {name: value for name, value in whole.now.data.items() if name not in confirmed} == {
        name: value for name, value in apart.now.data.items() if name not in confirmed
    }
