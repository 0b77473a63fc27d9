"""What an owner decides about submissions, attempts and operators' commands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.blocking import with_block
from rewindq.engine.core.retry import FailureClass, Retry
from rewindq.engine.core.unique import Unique

NOW = 1_790_000_000_000_000
HEAD = s.JobHead("t", "order:1", "order:1", 0, NOW - 5, 3, "sha256:1")


def submission(**fields: object) -> d.Submission:
    made = d.Submission("job", e.JobSubmitted("t", b"{}", None, "sha256:1"), NOW - 5, 9, "order:1", "order:1", 2, None)
    return made._replace(**fields)  # type: ignore[arg-type]


def bodies(events: tuple[e.Event, ...]) -> list[e.Body]:
    return [event.body for event in events]


def test_a_submission_is_accepted_with_what_it_brought() -> None:
    body = e.JobSubmitted("t", None, "sha256:ref", "sha256:1", "order:1", 7, NOW + 10, "parent")
    events = d.decide_submission(None, submission(body=body, secrets=("card",)), 2, NOW)

    assert bodies(events) == [
        e.JobAccepted(
            "t", "order:1", None, "sha256:ref", "sha256:1", 7, NOW + 10, NOW - 5, 9, "parent", secrets=("card",)
        )
    ]


@pytest.mark.parametrize(("due", "kept"), [(None, None), (NOW - 1, None), (NOW, None), (NOW + 1, NOW + 1)])
def test_only_a_due_time_to_come_delays(due: int | None, kept: int | None) -> None:
    body = replace(submission().body, due=due)
    (accepted,) = bodies(d.decide_submission(None, submission(body=body), 2, NOW))

    assert isinstance(accepted, e.JobAccepted)
    assert accepted.due == kept


@pytest.mark.parametrize(("asked", "given"), [(5000, 1000), (1000, 1000), (-1000, -1000), (-(2**63), -1000), (0, 0)])
def test_priorities_are_bounded(asked: int, given: int) -> None:
    body = replace(submission().body, priority=asked)
    (accepted,) = bodies(d.decide_submission(None, submission(body=body), 2, NOW))

    assert isinstance(accepted, e.JobAccepted)
    assert accepted.priority == given
    s.ready_key(given, 0)


@pytest.mark.parametrize(
    ("known", "same"),
    [(HEAD, True), (replace(HEAD, digest="sha256:2"), False), (replace(HEAD, type="other"), False)],
)
def test_an_id_that_is_known_is_a_duplicate_and_tells_whether_it_is_the_same(known: s.JobHead, same: bool) -> None:
    for home in (2, 5):
        (event,) = d.decide_submission(known, submission(home=home), 2, NOW)
        assert event.body == e.SubmissionDuplicated("sha256:1", known.digest, same, 9)
        assert event.status == ("skipped" if same else "fail")


def test_a_submission_that_belongs_elsewhere_is_forwarded() -> None:
    (event,) = d.decide_submission(None, submission(home=5), 2, NOW)

    assert event.body == e.SubmissionForwarded(5, "order:1", 9)


def test_a_refused_submission_is_accepted_and_parked() -> None:
    refused = submission(refusal=(FailureClass.VALIDATION, "payload refused: amount"))
    accepted, failed, moved = bodies(d.decide_submission(None, refused, 2, NOW))

    assert isinstance(accepted, e.JobAccepted)
    assert failed == e.JobFailed("validation", "payload refused: amount")
    assert moved == e.MovedToInvestigation("validation", "payload refused: amount")


def test_long_messages_are_cut_and_say_so() -> None:
    assert d.bounded("x" * d.MESSAGE_MAX) == "x" * d.MESSAGE_MAX
    assert d.bounded("x" * (d.MESSAGE_MAX + 1)) == "x" * d.MESSAGE_MAX + "… (2001 characters)"


@pytest.mark.parametrize(
    ("lease", "resource", "token"),
    [
        (None, None, None),
        (None, "order:1", 1),
        (s.Lease(4, "other", 1), "order:1", 5),
        (s.Lease(4, "other", 1, 500, released=True), "order:1", 5),
        (s.Lease(4, "job", 1), "order:1", 5),
    ],
)
def test_a_start_takes_the_next_fencing_token(lease: s.Lease | None, resource: str | None, token: int | None) -> None:
    event = d.decide_start(s.JobState(s.WAITING, 1, lost=2), lease, resource, 5000)

    assert event == e.Event(e.AttemptStarted(2, 5000), fencing_token=token)


POLICY = Retry(max_attempts=3, base=1.0, factor=2.0, cap=60.0, jitter=0)


def failure(kind: FailureClass, **fields: object) -> d.AttemptFailure:
    return d.AttemptFailure(kind, "no", "charge", "OSError", 5)._replace(**fields)  # type: ignore[arg-type]


def job(**failures: int) -> s.JobState:
    return s.JobState(s.RUNNING, 1 + sum(failures.values()), failures=failures)


def test_a_failure_within_its_budget_is_retried_later() -> None:
    failed, scheduled = d.decide_failure(job(), failure(FailureClass.TRANSIENT), POLICY, NOW, 0.5)

    assert failed == e.Event(e.AttemptFailed("transient", "no", "OSError", 5), step="charge", status="fail")
    assert scheduled.body == e.RetryScheduled("transient", 1000, NOW + 1_000_000)


def test_delays_grow_with_the_failures() -> None:
    _, scheduled = d.decide_failure(job(transient=1), failure(FailureClass.TRANSIENT), POLICY, NOW, 0.5)

    assert scheduled.body == e.RetryScheduled("transient", 2000, NOW + 2_000_000)


def test_the_other_sides_wish_is_heard() -> None:
    _, scheduled = d.decide_failure(job(), failure(FailureClass.TRANSIENT, retry_after=30.0), POLICY, NOW, 0.5)

    assert isinstance(scheduled.body, e.RetryScheduled)
    assert scheduled.body.delay >= 30_000


def test_a_used_up_budget_parks_the_job_and_says_so() -> None:
    events = d.decide_failure(job(transient=2), failure(FailureClass.TRANSIENT), POLICY, NOW, 0.5)
    failed, ended, moved = bodies(events)

    assert isinstance(failed, e.AttemptFailed)
    assert isinstance(ended, e.JobFailed)
    assert ended.reason.startswith("no (")
    assert "3" in ended.reason
    assert moved == e.MovedToInvestigation("transient", ended.reason)
    assert {event.step for event in events} == {"charge"}


@pytest.mark.parametrize("kind", [FailureClass.VALIDATION, FailureClass.CANCELLED])
def test_what_is_never_retried_is_parked_at_once(kind: FailureClass) -> None:
    events = bodies(d.decide_failure(job(), failure(kind), POLICY, NOW, 0.5))

    assert isinstance(events[-1], e.MovedToInvestigation)
    assert not any(isinstance(body, e.RetryScheduled) for body in events)


def test_a_terminal_failure_is_parked_whatever_budget_is_left() -> None:
    events = bodies(d.decide_failure(job(), failure(FailureClass.TRANSIENT, terminal=True), POLICY, NOW, 0.5))

    assert [type(body) for body in events] == [e.AttemptFailed, e.JobFailed, e.MovedToInvestigation]


def test_doubts_that_can_be_resolved_burn_the_transient_budget() -> None:
    """The next attempt looks the call up; but not for ever."""
    doubt = failure(FailureClass.IN_DOUBT)
    first = bodies(d.decide_failure(job(), doubt, POLICY, NOW, 0.5))
    last = bodies(d.decide_failure(job(transient=1, in_doubt=1), doubt, POLICY, NOW, 0.5))

    assert isinstance(first[-1], e.RetryScheduled)
    assert isinstance(last[-1], e.MovedToInvestigation)


def test_each_open_effect_is_in_doubt_in_a_fixed_order() -> None:
    effects = s.OpenEffects(True, {"z": ("kz", True), "done": ("kd", False), "a": ("ka", True)})
    events = d.doubts(effects, "lost")

    assert [(event.step, event.body) for event in events] == [
        ("a", e.EffectInDoubt("ka", "lost")),
        ("z", e.EffectInDoubt("kz", "lost")),
    ]
    assert d.doubts(None, "lost") == ()


def test_a_lost_attempt_waits_again_until_the_job_is_poison() -> None:
    lost = s.JobState(s.RUNNING, 1, worker="w1", lost=1)
    assert bodies(d.decide_lost(lost, 3, "gone")) == [e.AttemptLost("gone", "w1", 2)]

    attempt_lost, failed, moved = bodies(d.decide_lost(replace(lost, lost=2), 3, "gone"))
    assert attempt_lost == e.AttemptLost("gone", "w1", 3)
    assert isinstance(failed, e.JobFailed)
    assert failed.failure_class == "attempt_lost"
    assert "lost 3 times" in failed.reason
    assert "w1" in failed.reason
    assert isinstance(moved, e.MovedToInvestigation)


CANCEL = e.CancelCommand("c1", "wrong", "ann")


@pytest.mark.parametrize("status", [s.WAITING, s.DELAYED, s.RETRYING, s.INVESTIGATION])
def test_a_job_that_does_not_run_is_cancelled_at_once(status: str) -> None:
    assert bodies(d.decide_cancel(s.JobState(status), CANCEL)) == [e.JobCancelled("wrong", "ann", "c1")]


def test_a_running_job_is_asked_to_stop() -> None:
    assert bodies(d.decide_cancel(s.JobState(s.RUNNING), CANCEL)) == [e.CancelRequested("wrong", "ann", "c1")]


def test_a_cancel_of_an_unknown_job_is_kept_and_ends_the_job_when_it_comes() -> None:
    dropped = s.KeptCancel("old", "bob", "c0", 3)
    assert bodies(d.decide_cancel(None, CANCEL)) == [e.CancelKept("wrong", "ann", "c1")]
    kept, refused = bodies(d.decide_cancel(None, CANCEL, dropped))
    assert kept == e.CancelKept("wrong", "ann", "c1")
    assert isinstance(refused, e.CommandRefused)
    assert refused.command_id == "c0"

    parked = submission(refusal=(FailureClass.VALIDATION, "bad payload"))
    for one in (submission(), parked):
        accepted, cancelled = d.decide_submission(None, one, 2, NOW, s.KeptCancel("wrong", "ann", "c1", 4))
        assert isinstance(accepted.body, e.JobAccepted)
        assert cancelled == e.Event(e.JobCancelled("wrong", "ann", "c1"), status="fail")


@pytest.mark.parametrize("known", [s.JobState(s.SUCCEEDED), s.JobState(s.CANCELLED)])
def test_what_is_over_is_not_cancelled(known: s.JobState) -> None:
    (event,) = d.decide_cancel(known, CANCEL)

    assert isinstance(event.body, e.CommandRefused)
    assert (event.body.command, event.body.command_id, event.status) == ("cancel", "c1", "fail")
    assert ("no such job" if known is None else known.status) in event.body.reason


RETRY = e.RetryCommand("c2", "fixed", "ann")


@pytest.mark.parametrize("status", [None, *sorted(s.ACTIVE | s.TERMINAL)])
def test_only_a_job_in_investigation_is_sent_back(status: str | None) -> None:
    (event,) = d.decide_operator_retry(None if status is None else s.JobState(status), RETRY)

    assert isinstance(event.body, e.CommandRefused)
    assert ("no such job" if status is None else status) in event.body.reason


def test_a_job_in_investigation_is_sent_back() -> None:
    assert bodies(d.decide_operator_retry(s.JobState(s.INVESTIGATION), RETRY)) == [
        e.RetryRequested("fixed", "ann", "c2")
    ]


@pytest.mark.parametrize("lost", [True, False])
def test_a_failure_blocks_its_key_once_and_before_its_last_event(lost: bool) -> None:
    job = s.JobState(s.RUNNING, 1, 7)
    events = d.decide_lost(job, 1, "gone") if lost else d.investigation("unknown", "no", None)
    blocked = with_block(events, job, "order:1", True)

    assert [type(body) for body in bodies(blocked)] == [
        *map(type, bodies(events[:-1])),
        e.KeyBlocked,
        type(events[-1].body),
    ]
    assert with_block(events, replace(job, holds=s.Holds(blocks=True)), "order:1", True) == events
    assert with_block(events, job, "order:1", False) == events
    assert with_block(events, job, None, True) == events


def test_a_lost_attempt_that_waits_again_blocks_nothing() -> None:
    job = s.JobState(s.RUNNING, 1, 7)
    events = d.decide_lost(job, 3, "gone")

    assert with_block(events, job, "order:1", True) == events


UNTIL = NOW + 1_000_000


@pytest.mark.parametrize(
    ("mark", "first"),
    [
        (None, None),
        (s.UniqueMark("other"), "other"),
        (s.UniqueMark("other", NOW + 1), "other"),
        (s.UniqueMark("other", NOW), None),
        (s.UniqueMark("job", NOW + 1), None),
    ],
)
def test_a_unique_key_is_taken_unless_another_job_holds_it(mark: s.UniqueMark | None, first: str | None) -> None:
    unique = Unique("job", "u1", 1_000_000, mark)
    accepted, then = bodies(d.decide_submission(None, submission(unique=unique), 2, NOW))
    retried = bodies(d.decide_operator_retry(s.JobState(s.INVESTIGATION), RETRY, unique, NOW))

    assert isinstance(accepted, e.JobAccepted)
    if first is None:
        assert then == e.UniqueTaken("u1", UNTIL)
        assert retried == [e.RetryRequested(RETRY.reason, RETRY.actor, RETRY.command_id), e.UniqueTaken("u1", UNTIL)]
        return
    assert then == e.UniqueDuplicated("u1", "other")
    (refused,) = retried
    assert isinstance(refused, e.CommandRefused)
    assert refused.reason == "other holds the unique key 'u1': retry when it has ended, or cancel it"


def test_without_a_window_a_unique_key_is_held_to_the_end() -> None:
    assert Unique("job", "u1", None, None).taken(NOW).body == e.UniqueTaken("u1", None)


def test_what_is_refused_takes_no_unique_key() -> None:
    refused = submission(refusal=(FailureClass.VALIDATION, "bad"), unique=Unique("job", "u1", None, None))
    assert e.UniqueTaken not in map(type, bodies(d.decide_submission(None, refused, 2, NOW)))


def test_a_job_that_is_to_be_undone_blocks_its_key_already() -> None:
    job = s.JobState(s.RUNNING, 1, 7)
    started = e.Event(e.CompensationStarted("unknown", "no", None, ("room",)))

    assert [type(body) for body in bodies(with_block((started,), job, "order:1", True))] == [
        e.KeyBlocked,
        e.CompensationStarted,
    ]
