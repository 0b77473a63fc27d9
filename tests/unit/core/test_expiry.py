"""What may expire and what stays of it, as tables."""

from __future__ import annotations

import msgspec
import pytest

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.evolve import FoldError, Moment, evolve_idempotency
from rewindq.engine.core.expiry import Candidate, decide_expiry, evolve_expired, may_expire
from rewindq.engine.core.global_keys import is_global, record_key
from rewindq.engine.core.retry import FailureClass

CUTOFF = 1000
DONE = s.Idempotency(s.DONE, "d1", "job", 2, "charge", b"1", changed_at=CUTOFF)
OVER = s.JobState(s.SUCCEEDED, 2, 9, finished_at=CUTOFF)
AT = Moment(50, 7000, "w", "", 0, None, None)


def candidate(
    record: s.Idempotency = DONE, holder: s.JobState | None = OVER, key: str = "k", tied: bool = False
) -> Candidate:
    return Candidate(key, record, holder, tied)


def allowed(one: Candidate, known: dict[str, s.Idempotency] | None = None) -> bool:
    table = {one.key: one.record, **(known or {})}
    return may_expire(one, lambda key: (1, table[key]) if key in table else None, CUTOFF)


@pytest.mark.parametrize("status", [s.SUCCEEDED, s.CANCELLED])
@pytest.mark.parametrize("outcome", [s.DONE, s.FAILED])
def test_an_outcome_of_a_job_that_ended_long_ago_goes(status: str, outcome: str) -> None:
    record, holder = msgspec.structs.replace(DONE, status=outcome), msgspec.structs.replace(OVER, status=status)
    assert allowed(candidate(record, holder))


@pytest.mark.parametrize("status", [s.STARTED, s.IN_DOUBT, s.EXPIRED])
def test_what_has_no_outcome_stays(status: str) -> None:
    assert not allowed(candidate(msgspec.structs.replace(DONE, status=status)))


@pytest.mark.parametrize("status", [s.WAITING, s.DELAYED, s.RUNNING, s.RETRYING, s.INVESTIGATION])
def test_what_is_of_a_job_that_is_not_over_stays(status: str) -> None:
    assert not allowed(candidate(holder=msgspec.structs.replace(OVER, status=status)))


def test_what_is_young_tied_or_of_an_unknown_job_stays() -> None:
    assert not allowed(candidate(holder=msgspec.structs.replace(OVER, finished_at=CUTOFF + 1)))
    assert not allowed(candidate(msgspec.structs.replace(DONE, changed_at=CUTOFF + 1)))
    assert not allowed(candidate(holder=None))
    assert not allowed(candidate(tied=True))


def test_what_was_compensated_and_its_compensation_stay() -> None:
    undoable = msgspec.structs.replace(DONE, compensation=b"{}")
    assert allowed(candidate(undoable))
    assert not allowed(candidate(undoable), {"k/compensate": DONE})
    assert not allowed(candidate(key="k/compensate"))


@pytest.mark.parametrize("key", ["/charge/k", "//charge/k"])
def test_what_partitions_share_stays(key: str) -> None:
    assert is_global("/charge/k") and record_key("/charge/k") == "//charge/k"
    assert not allowed(candidate(key=key))


def test_nothing_to_drop_is_no_event() -> None:
    assert decide_expiry([candidate(tied=True)], lambda key: None, CUTOFF) == ()
    (event,) = decide_expiry([candidate(), candidate(key="other", tied=True)], lambda key: None, CUTOFF)
    assert event.body == e.KeysExpired(CUTOFF, ("k",))


def test_of_a_success_a_stub_stays_and_of_what_was_not_done_nothing() -> None:
    stub = evolve_expired("k", DONE, AT)
    assert stub == s.Idempotency(s.EXPIRED, "d1", "job", 2, "charge", changed_at=7000)
    assert evolve_expired("k", msgspec.structs.replace(DONE, status=s.FAILED), AT) is None


@pytest.mark.parametrize("record", [None, msgspec.structs.replace(DONE, status=s.IN_DOUBT)])
def test_the_fold_refuses_to_drop_what_has_no_outcome(record: s.Idempotency | None) -> None:
    with pytest.raises(FoldError, match="'k' is dropped at seq 50"):
        evolve_expired("k", record, AT)


def ask(**how: bool) -> d.EffectDecision:
    request = d.EffectRequest(
        "charge", "charge", "k", "d1", None, None, how.get("idempotent", False), how.get("lookup", False)
    )
    return d.decide_effect((50, evolve_expired("k", DONE, AT)), request, "other", False)  # type: ignore[arg-type]


def test_who_meets_a_stub_is_in_doubt() -> None:
    assert isinstance(ask(lookup=True), d.Lookup)
    assert isinstance(ask(idempotent=True), d.Call)
    refused = ask()
    assert isinstance(refused, d.Refused)
    assert (refused.failure_class, refused.terminal) == (FailureClass.IN_DOUBT, True)
    assert refused.event is not None and isinstance(refused.event.body, e.EffectInDoubt)


def test_other_content_under_a_stub_is_a_conflict() -> None:
    request = d.EffectRequest("charge", "charge", "k", "d2", None, None, True, True)
    stub = evolve_expired("k", DONE, AT)
    assert stub is not None
    refused = d.decide_effect((50, stub), request, "other", False)
    assert isinstance(refused, d.Refused) and refused.failure_class is FailureClass.VALIDATION


def test_an_answer_that_was_found_again_is_known_again() -> None:
    found = evolve_idempotency(evolve_expired("k", DONE, AT), e.EffectSucceeded("k", b"2", None, 0, "lookup"), AT)
    assert found is not None and (found.status, found.answer, found.request_digest) == (s.DONE, b"2", "d1")
