"""What is undone, in which order, and what is told of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.compensate import (
    Lookup,
    Undo,
    current_key,
    end_compensation,
    same_intent,
    undo_of,
)
from rewindq.engine.core.retry import FailureClass, Retry

RECORD = s.Idempotency(s.DONE, "sha256:1", "job", 1, "x", b"1", compensation=b"{}")
RUNNING = s.JobState(s.RUNNING, 2)
FAILURE = d.AttemptFailure(FailureClass.VALIDATION, "bad", "pay", None, 5, terminal=True)


def lookup(**records: s.Idempotency) -> Lookup:
    """By key, `__` standing for a slash; positions in the order given."""
    known = {name.replace("__", "/"): (seq, record) for seq, (name, record) in enumerate(records.items(), 10)}
    return known.get


def opened(**keys: bool) -> s.OpenEffects:
    return s.OpenEffects(True, {key: (key, pending) for key, pending in keys.items()})


def test_the_last_success_comes_first_whatever_the_order_of_the_steps() -> None:
    known = lookup(b=RECORD, a=RECORD, c=replace(RECORD, compensation=None, compensation_ref="ref"))
    undo = undo_of("job", opened(a=False, b=False, c=False), known)
    assert [one.step for one in undo.due] == ["c", "a", "b"]
    assert not undo.doubted


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, compensation=None),
        replace(RECORD, job_id="other"),
        replace(RECORD, status=s.FAILED),
    ],
)
def test_only_the_jobs_own_successes_with_a_compensation_are_undone(record: s.Idempotency) -> None:
    assert undo_of("job", opened(a=False), lookup(a=record)) == Undo()


@pytest.mark.parametrize("status", [s.STARTED, s.IN_DOUBT])
def test_an_unknown_outcome_is_told(status: str) -> None:
    known = lookup(a=RECORD, b=replace(RECORD, status=status, compensation=None))
    assert undo_of("job", opened(a=False, b=False), known).doubted


def test_what_is_undone_is_not_undone_again() -> None:
    known = lookup(a=RECORD, a__compensate=replace(RECORD, compensation=None), b=RECORD)
    undo = undo_of("job", opened(a=False, b=False), known)
    assert ([one.step for one in undo.due], [one.step for one in undo.done]) == (["b"], ["a"])


def test_a_call_that_two_steps_were_answered_by_is_undone_once() -> None:
    effects = s.OpenEffects(False, {"pay": ("a", False), "pay#2": ("a", False)})
    assert [one.step for one in undo_of("job", effects, lookup(a=RECORD)).due] == ["pay"]


def test_a_key_that_was_undone_is_followed_by_another() -> None:
    undone = replace(RECORD, compensation=None)
    assert current_key("a", lookup()) == "a"
    assert current_key("a", lookup(a=RECORD)) == "a"
    assert current_key("a", lookup(a=RECORD, a__compensate=replace(undone, status=s.IN_DOUBT))) == "a"
    assert current_key("a", lookup(a=RECORD, a__compensate=undone)) == "a/2"
    assert current_key("a", lookup(a=RECORD, a__compensate=undone, a__2=RECORD, a__2__compensate=undone)) == "a/3"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("p/o/k", "p/o/k/2", True),
        ("p/o/k/compensate", "p/o/k/2/compensate", True),
        ("p/o/k", "p/o/k/compensate", False),
        ("p/o/k", "p/o/l", False),
        ("p/compensate/compensate", "p/compensate/compensate", True),
    ],
)
def test_keys_of_one_intent(one: str, other: str, same: bool) -> None:
    assert same_intent(one, other) is same


def test_a_job_that_failed_for_good_undoes_first() -> None:
    undo = undo_of("job", opened(a=False), lookup(a=RECORD))
    failed, started = d.decide_failure(RUNNING, FAILURE, Retry(), 0, 0.0, undo)
    assert isinstance(failed.body, e.AttemptFailed)
    assert started.body == e.CompensationStarted("validation", "bad", None, ("a",))
    lost = d.decide_lost(RUNNING, 1, "gone", undo)
    assert isinstance(lost[-1].body, e.CompensationStarted)


@pytest.mark.parametrize(
    ("failure", "doubted"), [(FAILURE, True), (FAILURE._replace(failure_class=FailureClass.IN_DOUBT), False)]
)
def test_with_an_outcome_unknown_a_person_looks_first(failure: d.AttemptFailure, doubted: bool) -> None:
    undo = undo_of("job", opened(a=False), lookup(a=RECORD))._replace(doubted=doubted)
    events = d.decide_failure(RUNNING, failure, Retry(), 0, 0.0, undo)
    assert [type(event.body) for event in events] == [e.AttemptFailed, e.JobFailed, e.MovedToInvestigation]


def test_a_compensation_that_failed_for_good_ends_with_the_jobs_own_failure() -> None:
    job = replace(RUNNING, compensating=s.Failure("unknown", "no car", "car"))
    undo = undo_of("job", opened(a=False), lookup(a=RECORD))
    failed, ended, lost, moved = d.decide_failure(job, FAILURE, Retry(), 0, 0.0, undo)
    assert isinstance(failed.body, e.AttemptFailed)
    assert ended.body == e.CompensationEnded((), ("a",), "pay: bad")
    assert isinstance(lost.body, e.JobFailed)
    assert isinstance(moved.body, e.MovedToInvestigation)
    assert moved.body.failure_class == "unknown"
    assert moved.body.reason.startswith("no car; not compensated: a (pay: bad)")


def test_what_is_told_stays_whole_whatever_the_failures_length() -> None:
    undo = undo_of("job", opened(a=False), lookup(a=RECORD))
    reason = end_compensation(s.Failure("unknown", "x" * 5000), undo, "y" * 5000)[-1].body.reason  # type: ignore[attr-defined]
    assert "not compensated: a" in reason
    assert reason.endswith("retrying the job goes on with that")


def test_while_it_undoes_a_job_is_not_cancelled_but_in_investigation_it_is() -> None:
    command = e.CancelCommand("c1", "enough", "me")
    failure = s.Failure("unknown", "no car")
    for status in (s.RUNNING, s.WAITING, s.RETRYING):
        (refused,) = d.decide_cancel(s.JobState(status, compensating=failure), command)
        assert isinstance(refused.body, e.CommandRefused)
    (cancelled,) = d.decide_cancel(s.JobState(s.INVESTIGATION, compensating=failure), command)
    assert isinstance(cancelled.body, e.JobCancelled)
