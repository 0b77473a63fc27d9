"""Effects and writes: called once, answered from the record, in doubt, refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import writes as w
from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.values import ValueRefused

STATUSES = (None, s.STARTED, s.DONE, s.FAILED, s.IN_DOUBT)


def request(**fields: object) -> d.EffectRequest:
    made = d.EffectRequest("charge", "charge#1", "order:1/charge/7", "sha256:1", b"{}", 5000, False, False)
    return made._replace(**fields)  # type: ignore[arg-type]


def known(status: str | None, digest: str = "sha256:1") -> tuple[int, s.Idempotency] | None:
    if status is None:
        return None
    answer = b"7" if status == s.DONE else None
    return 12, s.Idempotency(status, digest, "other", 2, "charge#1", answer, "ref" if answer else None, "time-out")


#: By (status, whether its holder runs now): what is decided without a policy, with a lookup, with `idempotent=True`.
DECISIONS: dict[tuple[str | None, bool], tuple[type, type, type]] = {
    (None, False): (d.Call, d.Call, d.Call),
    (None, True): (d.Call, d.Call, d.Call),
    (s.STARTED, False): (d.Refused, d.Lookup, d.Call),
    (s.STARTED, True): (d.Refused, d.Refused, d.Refused),
    (s.DONE, False): (d.Answered, d.Answered, d.Answered),
    (s.DONE, True): (d.Answered, d.Answered, d.Answered),
    (s.FAILED, False): (d.Call, d.Call, d.Call),
    (s.FAILED, True): (d.Call, d.Call, d.Call),
    (s.IN_DOUBT, False): (d.Refused, d.Lookup, d.Call),
    (s.IN_DOUBT, True): (d.Refused, d.Lookup, d.Call),
}


def test_the_table_is_whole() -> None:
    assert set(DECISIONS) == set(product(STATUSES, (False, True)))


@pytest.mark.parametrize(("status", "holder_runs"), DECISIONS)
def test_every_status_and_policy(status: str | None, holder_runs: bool) -> None:
    plain, lookup, idempotent = DECISIONS[status, holder_runs]

    assert type(d.decide_effect(known(status), request(), "job", holder_runs)) is plain
    assert type(d.decide_effect(known(status), request(has_lookup=True), "job", holder_runs)) is lookup
    assert type(d.decide_effect(known(status), request(idempotent=True), "job", holder_runs)) is idempotent
    # Asking first is the safer of the two.
    assert type(d.decide_effect(known(status), request(idempotent=True, has_lookup=True), "job", holder_runs)) is lookup


@pytest.mark.parametrize(
    ("status", "holder_runs", "policy"),
    list(product(STATUSES[1:], (False, True), ({}, {"has_lookup": True}, {"idempotent": True}))),
)
def test_a_key_with_other_content_is_refused_whatever_is_known(
    status: str, holder_runs: bool, policy: dict[str, bool]
) -> None:
    decision = d.decide_effect(known(status, "sha256:0"), request(**policy), "job", holder_runs)

    assert isinstance(decision, d.Refused)
    assert (decision.failure_class, decision.terminal) == (FailureClass.VALIDATION, True)
    assert decision.event is not None
    assert decision.event.body == e.IdempotencyConflict("order:1/charge/7", "sha256:0", "sha256:1")
    for named in ("charge", "order:1/charge/7", "sha256:0", "sha256:1", "needs a new key"):
        assert named in decision.reason


def test_a_call_is_started_under_its_key() -> None:
    decision = d.decide_effect(None, request(idempotent=True), "job", False)

    assert decision == d.Call(
        e.Event(
            e.EffectStarted("order:1/charge/7", "sha256:1", b"{}", 5000, True), step="charge#1", side_effect="charge"
        )
    )


def test_a_done_call_is_answered_from_its_record() -> None:
    record = known(s.DONE)
    decision = d.decide_effect(record, request(), "job", False)

    assert isinstance(decision, d.Answered)
    assert record is not None
    assert decision.record is record[1]
    assert decision.skipped.body == e.EffectSkipped("order:1/charge/7", b"7", "ref", 12)
    assert decision.skipped.status == "skipped"


def test_a_doubt_is_for_a_person_and_names_the_call() -> None:
    decision = d.decide_effect(known(s.IN_DOUBT), request(), "job", False)

    assert isinstance(decision, d.Refused)
    assert (decision.failure_class, decision.terminal) == (FailureClass.IN_DOUBT, True)
    for named in ("charge", "order:1/charge/7", "time-out"):
        assert named in decision.reason


def test_a_call_that_another_job_is_making_is_a_concurrency_failure() -> None:
    decision = d.decide_effect(known(s.STARTED), request(has_lookup=True), "job", True)

    assert isinstance(decision, d.Refused)
    assert (decision.failure_class, decision.terminal) == (FailureClass.CONCURRENCY, False)
    assert "other is making the call" in decision.reason


texts = st.text(alphabet="/%25F:a ", min_size=1, max_size=6)


@given(one=st.tuples(texts, texts, texts), other=st.tuples(texts, texts, texts))
def test_different_parts_never_give_one_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    if not one[2].strip() or not other[2].strip():
        return

    assert (d.effect_key(*one) == d.effect_key(*other)) == (one == other)


def test_a_key_reads_as_its_parts() -> None:
    assert d.effect_key("order:1", "charge", "7") == "order:1/charge/7"
    assert d.effect_key("a/b", "c", "100%") == "a%2Fb/c/100%25"


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_key_is_refused(blank: str) -> None:
    with pytest.raises(ValueError, match="'charge': the idempotency key is blank"):
        d.effect_key("order:1", "charge", blank)


def test_a_key_that_changed_between_attempts_is_named() -> None:
    effects = s.OpenEffects(True, {"charge#1": ("order:1/charge/6", False)})
    event = d.unstable_key(effects, request())

    assert event is not None
    assert event.body == e.IdempotencyKeyUnstable("order:1/charge/7", "order:1/charge/6")
    assert d.unstable_key(effects, request(key="order:1/charge/6")) is None
    assert d.unstable_key(effects, request(step="charge#2")) is None
    assert d.unstable_key(None, request()) is None


# --- writes ---

CURRENT = s.Aggregate(4, 20, 16, {"status": "new"}, "other")


def save(**fields: object) -> w.SaveRequest:
    made = w.SaveRequest("order:1", "save#1", {"status": "paid", "note": DELETE, "a": DELETE}, 4, 7)
    return made._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("lease", [None, s.Lease(7, "job", 1), s.Lease(6, "job", 1)])
def test_a_write_on_the_current_version_under_the_newest_token_is_the_next_version(lease: s.Lease | None) -> None:
    assert w.decide_save(CURRENT, lease, save(), None) == e.Event(
        e.StateChanged(4, b'{"status":"paid"}', ("a", "note")),
        step="save#1",
        resource="order:1",
        resource_version=5,
        fencing_token=7,
    )


@pytest.mark.parametrize("expected", [0, 3, 5])
def test_a_write_on_another_version_is_a_conflict_with_both(expected: int) -> None:
    refused = w.decide_save(CURRENT, s.Lease(7, "job", 1), save(expected=expected), "other")

    assert isinstance(refused, w.SaveRefused)
    assert refused.event.body == e.WriteConflict(expected, 4, "other")
    assert (refused.fenced, refused.current, refused.event.status) == (False, 4, "fail")


@pytest.mark.parametrize("expected", [3, 4])
def test_a_write_under_an_older_token_is_fenced_whatever_its_version(expected: int) -> None:
    refused = w.decide_save(CURRENT, s.Lease(8, "other", 1), save(expected=expected), "other")

    assert isinstance(refused, w.SaveRefused)
    assert refused.event.body == e.WriteFenced(7, 8, expected)
    assert refused.event.fencing_token == 7
    assert refused.fenced


def test_a_write_without_a_token_stands_on_its_version() -> None:
    assert isinstance(w.decide_save(CURRENT, s.Lease(8, "other", 1), save(token=None), None), e.Event)
    assert isinstance(w.decide_save(CURRENT, s.Lease(8, "other", 1), save(token=None, expected=3), None), w.SaveRefused)


def test_the_first_version_is_written_on_none() -> None:
    event = w.decide_save(s.NO_AGGREGATE, None, save(expected=0), None)

    assert isinstance(event, e.Event)
    assert event.resource_version == 1


def test_a_value_that_cannot_be_kept_is_refused_by_its_path() -> None:
    with pytest.raises(ValueRefused, match="/when"):
        w.decide_save(CURRENT, None, save(changes={"when": object()}), None)
