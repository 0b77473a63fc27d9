"""The checks' own tables, beside the fold's."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core.evolve import JOB_EVENTS
from rewindq.engine.core.merge import Merged
from rewindq.engine.runtime.checks import EFFECTS, STAYS, TRANSITIONS, PartitionChecks, Violation


def test_the_tables_know_every_event_that_changes_a_job_or_an_effect() -> None:
    assert TRANSITIONS.keys() | STAYS == JOB_EVENTS
    effects = {kind for kind in e.BODIES.values() if kind.__name__.startswith("Effect")}
    assert EFFECTS.keys() | {e.EffectResolved} == effects


def test_a_resolution_of_what_is_not_in_doubt_is_told() -> None:
    found: list[Violation] = []
    checks = PartitionChecks(0, {"ns.lifecycle": "lifecycle"}, found.append)
    event = e.Event(e.EffectResolved("k", "failed", None, None, "r", "me", "c1"))
    checks.take(Merged("ns.lifecycle", 0, e.EventRecord(0, 1, 1, 1, "w", "job", 1, (event,))))
    assert [violation.kind for violation in found] == ["resolution"]


def test_a_gap_is_told_even_if_the_merge_lets_it_pass() -> None:
    found: list[Violation] = []
    checks = PartitionChecks(3, {"ns.lifecycle": "lifecycle"}, found.append)
    event = e.Event(e.CommandRefused("cancel", "c1", "over"))
    for seq in (0, 2):
        record = e.EventRecord(seq, seq + 1, 1, 1, "w", None, 0, (event,))
        checks.take(Merged("ns.lifecycle", seq, record))
    assert [(violation.kind, violation.position) for violation in found] == [("seq_gap", "p3@2")]


def test_what_is_held_is_released_once_and_before_it_is_accepted() -> None:
    found: list[Violation] = []
    checks = PartitionChecks(3, {"ns.lifecycle": "lifecycle"}, found.append)
    held = e.Event(e.SubmissionHeld("new", "d", b"bytes", 1))
    released = e.Event(e.SubmissionReleased("known"))
    accepted = e.Event(e.JobAccepted("new", "k", b"{}", None, "d", 0, None, 1, 1))
    for seq, event in enumerate((held, released, released, held, accepted)):
        checks.take(Merged("ns.lifecycle", seq, e.EventRecord(seq, seq + 1, 1, 1, "w", "a", 0, (event,))))
    assert [(violation.kind, violation.position) for violation in found] == [("hold", "p3@2"), ("hold", "p3@4")]
    assert checks.taken_in["jobs"] == {1}
