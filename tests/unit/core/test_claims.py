"""What the home of a global key decides, each answer by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.claims import Answer, Ask, Wait, claim_refusal, decide_claim, decide_settle
from rewindq.engine.core.compensate import Lookup
from rewindq.engine.core.evolve import Moment, evolve_claim
from rewindq.engine.core.global_keys import base_of, global_effect_key, home_of, is_global, record_key, recorded_key
from rewindq.engine.core.partitioner import partition_for

KEY = "/pay/g"
ASK = Ask("b/1/1", KEY, "d", "b", 1, "pay", 1, False)
HELD = s.Idempotency(s.STARTED, "d", "a", 1, "pay", claim_id="a/1/1", claimant=0)
DONE = replace(HELD, status=s.DONE, answer=b"7")
DOUBTED = replace(HELD, status=s.IN_DOUBT, reason="no answer")


def known(**records: s.Idempotency) -> Lookup:
    """Records by what stands behind the key, `_` for nothing and `_x` for `/x`, each at event 5."""
    stored = {record_key(KEY + name.rstrip("_").replace("_", "/")): (5, one) for name, one in records.items()}
    return stored.get


def decided(lookup: Lookup, **changes: Any) -> Answer:
    found = decide_claim(ASK._replace(**changes), lookup, 2, 9)
    assert isinstance(found, Answer)
    return found


@pytest.mark.parametrize("before", [{}, {"_": replace(HELD, status=s.FAILED, reason="declined")}])
def test_what_was_surely_not_done_is_claimed(before: dict[str, s.Idempotency]) -> None:
    (claimed,), reply = decided(known(**before))
    assert claimed.body == e.KeyClaimed("b/1/1", KEY, "d", 1, None)
    assert (reply.outcome, reply.reason, reply.position) == ("claimed", None, "p2@9")


def test_what_was_done_is_answered_and_other_content_refused() -> None:
    events, reply = decided(known(_=DONE))
    assert (events, reply.outcome, reply.answer, reply.position) == ((), "succeeded", b"7", "p2@5")
    for record in (HELD, DONE, DOUBTED, replace(HELD, status=s.FAILED)):
        events, reply = decided(known(_=record), digest="other")
        assert (events, reply.outcome, reply.holder, reply.request_digest) == ((), "conflict", "a", "d")


def test_who_asks_again_has_it_still_others_wait_and_nobody_waits_for_itself() -> None:
    events, reply = decided(known(_=HELD), request_id="a/1/1", job_id="a")
    assert (events, reply.outcome, reply.position) == ((), "claimed", "p2@5")
    assert decide_claim(ASK, known(_=HELD), 2, 9) == Wait("a")
    events, reply = decided(known(_=HELD), job_id="a", request_id="a/1/2")
    assert (events, reply.outcome, reply.holder) == ((), "busy", "a")


@pytest.mark.parametrize("undo", [HELD, DOUBTED])
def test_an_answer_is_given_to_nobody_while_it_is_being_undone(undo: s.Idempotency) -> None:
    done = replace(DONE, compensation=b"{}")
    assert decide_claim(ASK, known(_=done, _compensate=undo), 2, 9) == Wait("a")
    _, reply = decided(known(_=done, _compensate=replace(undo, status=s.FAILED)))
    assert (reply.outcome, reply.answer) == ("succeeded", b"7")


@pytest.mark.parametrize("record", [DOUBTED, HELD])
def test_a_call_in_doubt_is_claimed_by_who_can_find_out_only(record: s.Idempotency) -> None:
    """What an earlier attempt of the same job has not told of is in doubt, too."""
    asker = {"job_id": "a", "attempt": 2, "request_id": "a/2/1"}
    (claimed,), reply = decided(known(_=record), resolves=True, **asker)
    assert isinstance(claimed.body, e.KeyClaimed) and claimed.body.doubt == reply.reason
    assert (reply.outcome, reply.reason is None) == ("claimed", False)
    events, reply = decided(known(_=record), **asker)
    assert (reply.outcome, reply.holder) == ("in_doubt", "a")
    assert [type(event.body) for event in events] == ([e.KeySettled] if record is HELD else [])
    _, reply = decided(known(_=DOUBTED))
    assert reply.reason == "no answer (in job a)"


def test_a_compensated_key_goes_on_as_the_next_one() -> None:
    lookup = known(_=DONE, _compensate=DONE)
    (claimed,), reply = decided(lookup)
    assert isinstance(claimed.body, e.KeyClaimed) and claimed.body.key == reply.key == f"{KEY}/2"
    _, reply = decided(lookup, key=f"{KEY}/compensate")
    assert (reply.outcome, reply.key) == ("succeeded", f"{KEY}/compensate")


@pytest.mark.parametrize(
    "record, outcome, stale, settled, told",
    [
        (HELD, "succeeded", False, True, False),
        (HELD, "succeeded", True, True, False),
        (HELD, "failed", False, True, False),
        (HELD, "failed", True, False, False),
        (HELD, "in_doubt", True, False, False),
        (HELD, "free", True, False, False),
        (HELD, "free", False, True, False),
        (DOUBTED, "succeeded", True, True, False),
        (DOUBTED, "free", False, False, False),
        (DOUBTED, "failed", False, False, False),
        (DONE, "succeeded", False, False, False),
        (DONE, "in_doubt", False, False, False),
        (replace(HELD, status=s.FAILED), "succeeded", False, False, True),
        (replace(HELD, claim_id="c/1/1"), "succeeded", False, False, True),
        (replace(HELD, claim_id="c/1/1"), "free", False, False, False),
        (HELD, "done", False, False, True),
    ],
)
def test_a_claim_is_settled_once_and_a_success_is_never_dropped_in_silence(
    record: s.Idempotency, outcome: str, stale: bool, settled: bool, told: bool
) -> None:
    found = decide_settle(known(_=record), e.SettleRequest("a/1/1", KEY, 0, outcome, "why", b"7"), stale)
    assert (found.event is not None, found.refused is not None) == (settled, told)


def test_a_claim_given_back_before_its_answer_came_is_found_under_the_key_it_was_granted() -> None:
    lookup = known(_=DONE, _compensate=DONE, _2=replace(HELD, claim_id="b/1/1"))
    found = decide_settle(lookup, e.SettleRequest("b/1/1", KEY, 1, "free"), False)
    assert found.event is not None and isinstance(found.event.body, e.KeySettled)
    assert found.event.body.key == f"{KEY}/2"


@pytest.mark.parametrize("doubt, after", [(None, s.FAILED), ("no answer", s.IN_DOUBT)])
def test_a_claim_without_a_call_leaves_what_was_known(doubt: str | None, after: str) -> None:
    at = Moment(1, 2, "w", "b", 1, "pay", None)
    claimed = evolve_claim(DOUBTED, e.KeyClaimed("b/1/1", KEY, "d", 1, doubt), at)
    assert (claimed.status, claimed.job_id, claimed.claimant) == (s.STARTED, "b", 1)
    freed = evolve_claim(claimed, e.KeySettled("b/1/1", KEY, "free"), at)
    assert (freed.status, freed.reason) == (after, doubt)


def test_a_person_is_heard_about_doubts_alone() -> None:
    assert claim_refusal(KEY, DOUBTED) is None
    assert "job a has claimed" in (claim_refusal(KEY, HELD) or "")
    assert "recorded as succeeded" in (claim_refusal(KEY, DONE) or "")


@pytest.mark.parametrize("given", ["g", "a/b", "100%", "%2F", " x", "a/2", "ö"])
def test_a_global_key_is_at_home_where_it_says(given: str) -> None:
    key = global_effect_key("pay/out", given)
    for full in (key, f"{key}/2", f"{key}/2/compensate"):
        assert is_global(full) and base_of(full) == key
        assert home_of(full, 7) == partition_for(given.encode(), 7)
        assert recorded_key(record_key(full)) == full
    assert recorded_key(key) is None
