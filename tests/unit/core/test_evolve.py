"""The life of a job as a table, written by hand: every status against every event."""

from __future__ import annotations

import msgspec
import pytest

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.evolve import (
    JOB_EVENTS,
    FoldError,
    Moment,
    evolve_idempotency,
    evolve_job,
    evolve_open_effects,
)

AT = Moment(100, 1_790_000_000_000_000, "w2", "job", 3, "charge", 9)

BODIES: dict[str, e.Body] = {
    "accepted": e.JobAccepted("t", "k", b"{}", None, "d", 0, None, 1, 0),
    "accepted for later": e.JobAccepted("t", "k", b"{}", None, "d", 0, 777, 1, 0),
    "started": e.AttemptStarted(0),
    "failed attempt": e.AttemptFailed("transient", "no route", "OSError", 5),
    "lost": e.AttemptLost("gone", "w1", 1),
    "handed back": e.AttemptHandedBack("shutdown"),
    "retry scheduled": e.RetryScheduled("transient", 5, 888),
    "succeeded": e.JobSucceeded(b"1", None, 5),
    "failed": e.JobFailed("validation", "bad"),
    "to investigation": e.MovedToInvestigation("validation", "bad"),
    "cancelled": e.JobCancelled("wrong", "ann", "c1"),
    "cancel requested": e.CancelRequested("wrong", "ann", "c1"),
    "retry requested": e.RetryRequested("fixed", "ann", "c1"),
    "key blocked": e.KeyBlocked("it failed"),
    "unique taken": e.UniqueTaken("u1", 999),
    "unique duplicated": e.UniqueDuplicated("u1", "first"),
    "compensation started": e.CompensationStarted("unknown", "no car", None, ("room",)),
    "compensation ended": e.CompensationEnded(("room",), (), None),
}

#: What is allowed, and where it leads. All else is a FoldError.
TABLE: dict[str | None, dict[str, str]] = {
    None: {
        "accepted": "waiting",
        "accepted for later": "delayed",
        "to investigation": "investigation",
    },
    "waiting": {
        "started": "running",
        "key blocked": "waiting",
        "unique taken": "waiting",
        "unique duplicated": "cancelled",
        "failed": "waiting",
        "to investigation": "investigation",
        "cancelled": "cancelled",
        "compensation started": "waiting",
        "compensation ended": "waiting",
    },
    "delayed": {
        "started": "running",
        "key blocked": "delayed",
        "unique taken": "delayed",
        "unique duplicated": "cancelled",
        "failed": "delayed",
        "to investigation": "investigation",
        "cancelled": "cancelled",
    },
    "retrying": {
        "started": "running",
        "key blocked": "retrying",
        "unique taken": "retrying",
        "failed": "retrying",
        "to investigation": "investigation",
        "cancelled": "cancelled",
    },
    "running": {
        "failed attempt": "running",
        "lost": "waiting",
        "handed back": "waiting",
        "retry scheduled": "retrying",
        "succeeded": "succeeded",
        "failed": "running",
        "to investigation": "investigation",
        "cancelled": "cancelled",
        "cancel requested": "running",
        "key blocked": "running",
        "unique taken": "running",
        "compensation started": "waiting",
        "compensation ended": "running",
    },
    "investigation": {
        "cancelled": "cancelled",
        "retry requested": "waiting",
    },
    "succeeded": {},
    "cancelled": {},
}


def state_of(status: str | None) -> s.JobState | None:
    if status is None:
        return None
    return s.JobState(status, 2, 50, 600 if status in ("delayed", "retrying") else None, "w1", failures={"unknown": 1})


def test_the_table_is_whole() -> None:
    assert {type(body) for body in BODIES.values()} == JOB_EVENTS
    assert set(TABLE) - {None} == s.ACTIVE | s.TERMINAL | {s.INVESTIGATION}


@pytest.mark.parametrize("event", BODIES)
@pytest.mark.parametrize("status", TABLE)
def test_each_status_takes_exactly_its_events(status: str | None, event: str) -> None:
    before = state_of(status)
    expected = TABLE[status].get(event)
    if expected is None:
        with pytest.raises(FoldError, match=r"seq 100\b"):
            evolve_job(before, BODIES[event], AT)
        return
    after = evolve_job(before, BODIES[event], AT)

    assert after.status == expected
    assert after.last_seq == 100
    assert before == state_of(status), "the state before was changed"
    assert s.decode_job(s.encode_state(after)) == after


@pytest.mark.parametrize("event", BODIES)
@pytest.mark.parametrize("status", sorted(s.TERMINAL))
def test_nothing_follows_a_terminal_status(status: str, event: str) -> None:
    with pytest.raises(FoldError, match="job"):
        evolve_job(state_of(status), BODIES[event], AT)


def running(**fields: object) -> s.JobState:
    return msgspec.structs.replace(s.JobState(s.RUNNING, 3, 90, worker="w1", started_at=4, token=8), **fields)


def test_a_start_names_its_worker_time_and_token_and_keeps_the_budgets() -> None:
    waiting = s.JobState(s.RETRYING, 2, 50, 600, failures={"transient": 2}, lost=1, cancel_reason="old")

    assert evolve_job(waiting, e.AttemptStarted(1), AT) == s.JobState(
        s.RUNNING, 3, 100, worker="w2", started_at=AT.timestamp, failures={"transient": 2}, lost=1, token=9
    )


def test_failures_are_counted_by_class() -> None:
    job = running(failures={"transient": 2})
    job = evolve_job(job, e.AttemptFailed("transient", "again", None, 1), AT)
    job = evolve_job(job, e.AttemptFailed("dependency", "down", None, 1), AT)

    assert job.failures == {"transient": 3, "dependency": 1}
    assert job.failure == s.Failure("dependency", "down", "charge")


def test_a_loss_is_counted_and_no_attempt_of_the_budget() -> None:
    after = evolve_job(running(failures={"unknown": 1}), e.AttemptLost("gone", "w1", 2), AT)

    assert (after.lost, after.failures, after.worker) == (2, {"unknown": 1}, None)


def test_a_hand_back_costs_nothing() -> None:
    after = evolve_job(running(lost=1, failures={"unknown": 1}), e.AttemptHandedBack("stop"), AT)

    assert (after.lost, after.failures, after.worker) == (1, {"unknown": 1}, None)


def test_success_forgets_the_failures_before_it() -> None:
    after = evolve_job(running(failure=s.Failure("transient", "x")), e.JobSucceeded(b"7", "ref", 5), AT)

    assert (after.failure, after.result, after.result_ref, after.finished_at) == (None, b"7", "ref", AT.timestamp)


def test_an_operators_retry_starts_the_budgets_anew_and_goes_on_counting_attempts() -> None:
    parked = s.JobState(s.INVESTIGATION, 5, 50, failures={"transient": 5}, lost=2, failure=s.Failure("unknown", "x"))

    assert evolve_job(parked, e.RetryRequested("fixed", "ann", "c1"), AT) == s.JobState(s.WAITING, 5, 100)


def test_what_could_not_become_a_job_is_parked_as_one() -> None:
    after = evolve_job(None, e.MovedToInvestigation("validation", "no Avro"), AT)

    assert after.failure == s.Failure("validation", "no Avro", "charge")
    assert after.finished_at == AT.timestamp


def test_what_is_to_be_undone_outlives_attempts_and_ends_when_nothing_is_left() -> None:
    failure = s.Failure("unknown", "no car", "charge")
    job = evolve_job(state_of("running"), BODIES["compensation started"], AT)
    assert (job.compensating, job.failures, job.lost) == (failure, {}, 0)
    for event in ("started", "lost", "started", "handed back", "started", "retry scheduled", "started"):
        job = evolve_job(job, BODIES[event], AT)
        assert job.compensating == failure
    left = evolve_job(job, e.CompensationEnded((), ("room",), "closed"), AT)
    parked = evolve_job(left, BODIES["to investigation"], AT)
    assert evolve_job(parked, BODIES["retry requested"], AT).compensating == failure
    assert evolve_job(parked, BODIES["cancelled"], AT).compensating is None
    assert evolve_job(job, BODIES["compensation ended"], AT).compensating is None


# --- what is known under an effect's key ---

STARTED = e.EffectStarted("k", "sha256:1", None, None, False)
OUTCOMES: dict[str, e.Body] = {
    s.DONE: e.EffectSucceeded("k", b"7", None, 3, "call"),
    s.FAILED: e.EffectFailed("k", "transient", "refused", None, 3),
    s.IN_DOUBT: e.EffectInDoubt("k", "time-out"),
}


def test_a_started_effect_names_who_started_it() -> None:
    known = evolve_idempotency(None, STARTED, AT)

    assert known == s.Idempotency(s.STARTED, "sha256:1", "job", 3, "charge", changed_at=AT.timestamp)


@pytest.mark.parametrize("status", OUTCOMES)
def test_an_outcome_keeps_the_digest_and_the_holder(status: str) -> None:
    known = evolve_idempotency(evolve_idempotency(None, STARTED, AT), OUTCOMES[status], AT)

    assert known is not None
    assert (known.status, known.request_digest, known.job_id, known.attempt) == (status, "sha256:1", "job", 3)
    assert known.changed_at == AT.timestamp


@pytest.mark.parametrize("status", OUTCOMES)
def test_an_outcome_without_a_start_is_refused(status: str) -> None:
    with pytest.raises(FoldError, match="no EffectStarted before it"):
        evolve_idempotency(None, OUTCOMES[status], AT)


def test_an_effect_that_failed_or_is_in_doubt_may_start_again() -> None:
    known = evolve_idempotency(None, STARTED, AT)
    for status in (s.FAILED, s.IN_DOUBT):
        known = evolve_idempotency(known, OUTCOMES[status], AT)
        known = evolve_idempotency(known, STARTED, AT)
        assert known is not None
        assert (known.status, known.reason) == (s.STARTED, None)


def test_a_skip_changes_nothing() -> None:
    done = evolve_idempotency(evolve_idempotency(None, STARTED, AT), OUTCOMES[s.DONE], AT)

    assert evolve_idempotency(done, e.EffectSkipped("k", b"7", None, 1), AT) == done


# --- the effects of a job that is not over ---


def test_effects_are_open_from_their_start_to_their_outcome() -> None:
    effects = evolve_open_effects(None, e.AttemptStarted(0), AT)
    assert effects == s.OpenEffects(True)
    effects = evolve_open_effects(effects, STARTED, AT)
    assert effects == s.OpenEffects(True, {"charge": ("k", True)})
    for body in OUTCOMES.values():
        assert evolve_open_effects(effects, body, AT) == s.OpenEffects(True, {"charge": ("k", False)})


@pytest.mark.parametrize("event", ["lost", "handed back", "retry scheduled", "to investigation"])
def test_keys_outlive_their_attempt(event: str) -> None:
    effects = s.OpenEffects(True, {"charge": ("k", True)})

    assert evolve_open_effects(effects, BODIES[event], AT) == s.OpenEffects(False, {"charge": ("k", True)})
    assert evolve_open_effects(s.OpenEffects(True), BODIES[event], AT) is None


@pytest.mark.parametrize("event", ["succeeded", "cancelled"])
def test_a_job_that_is_over_has_none(event: str) -> None:
    assert evolve_open_effects(s.OpenEffects(True, {"charge": ("k", False)}), BODIES[event], AT) is None


def test_what_a_job_holds_adds_up_and_goes_on_with_its_attempts() -> None:
    job = evolve_job(s.JobState(s.RUNNING, 1), BODIES["unique taken"], AT)
    job = evolve_job(job, BODIES["key blocked"], AT)
    assert job.holds == s.Holds(True, "u1")
    assert evolve_job(evolve_job(job, BODIES["lost"], AT), BODIES["started"], AT).holds == s.Holds(True, "u1")
    assert evolve_job(s.JobState(s.WAITING, holds=s.Holds(True)), BODIES["unique taken"], AT).holds == s.Holds(
        True, "u1"
    )


def test_a_unique_duplicate_names_the_first_job() -> None:
    job = evolve_job(s.JobState(s.WAITING), BODIES["unique duplicated"], AT)
    assert job.cancel_reason == "duplicate of first, which holds the unique key 'u1'"
