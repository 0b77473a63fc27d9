"""Broken rules of global keys are found."""

from __future__ import annotations

import pytest

from rewindq.engine.core import events as e
from rewindq.engine.runtime.check_keys import KeyChecks, second_successes, unfounded_claims

KEY = "/pay/g"


def claimed(request: str = "a/1/1", doubt: str | None = None) -> e.KeyClaimed:
    return e.KeyClaimed(request, KEY, "d", 0, doubt)


def settled(outcome: str, request: str = "a/1/1", command: str | None = None) -> e.KeySettled:
    return e.KeySettled(request, KEY, outcome, command_id=command)


ANSWERED = e.ClaimAnswered("a/1/1", KEY, 2, "claimed", 1, position="p2@0")
STARTED = e.EffectStarted(KEY, "d", None, None, False)
SUCCEEDED = e.EffectSucceeded(KEY, b"1", None, 1, "call")


def checks(partition: int, *events: tuple[str, e.Body]) -> tuple[KeyChecks, list[str]]:
    """The checks after events of (job, body), and the kinds of what they found."""
    found: list[str] = []
    made = KeyChecks(partition, lambda kind, seq, job_id, detail: found.append(kind))
    for seq, (job_id, body) in enumerate(events):
        made.take(e.EventRecord(seq, seq, 1, 1, "w", job_id, 1, (e.Event(body),)), body, seq)
    return made, found


@pytest.mark.parametrize(
    "events, kinds",
    [
        (
            [("a", claimed()), ("a", settled("failed")), ("b", claimed("b/1/1")), ("b", settled("succeeded", "b/1/1"))],
            [],
        ),
        ([("a", claimed()), ("a", settled("in_doubt")), ("b", claimed("b/1/1", "no answer"))], []),
        ([("a", claimed()), ("a", claimed("a/2/1", "its call was not told"))], []),
        ([("a", claimed()), ("a", settled("in_doubt")), ("a", settled("succeeded", command="c"))], []),
        ([("a", claimed()), ("b", claimed("b/1/1"))], ["second_claim"]),
        ([("a", claimed()), ("b", claimed("b/1/1", "doubt"))], ["second_claim"]),
        ([("a", claimed()), ("a", settled("succeeded")), ("b", claimed("b/1/1"))], ["second_claim"]),
        ([("a", claimed()), ("a", settled("in_doubt")), ("b", claimed("b/1/1"))], ["second_claim"]),
        (
            [("a", claimed(doubt="d")), ("a", settled("free")), ("b", claimed("b/1/1"))],
            ["second_claim"],
        ),
        ([("a", settled("failed"))], ["settlement"]),
        ([("a", claimed()), ("a", settled("failed")), ("a", settled("succeeded"))], ["settlement"]),
        ([("a", claimed()), ("b", settled("failed", "b/1/1"))], ["settlement"]),
        ([("a", claimed()), ("a", settled("failed", command="c"))], ["settlement"]),
        ([("a", ANSWERED), ("a", STARTED), ("a", SUCCEEDED)], []),
        ([("b", ANSWERED), ("a", STARTED)], ["unclaimed_call"]),
        ([("a", e.EffectStarted("o/pay/k", "d", None, None, False))], []),
    ],
)
def test_each_rule(events: list[tuple[str, e.Body]], kinds: list[str]) -> None:
    assert checks(0, *events)[1] == kinds


def test_two_successes_on_two_partitions_are_found() -> None:
    one, two = (checks(number, ("a", ANSWERED), ("a", SUCCEEDED))[0] for number in (0, 1))
    assert list(second_successes([one])) == []
    ((partition, detail),) = second_successes([one, two])
    assert partition == 1 and "p0@1, p1@1" in detail


def test_a_claim_that_its_home_does_not_hold_is_found() -> None:
    asker = checks(0, ("a", ANSWERED))[0]
    for events, next_seq, count in [([("a", claimed())], 1, 0), ([("b", claimed())], 1, 1), ([], 1, 1), ([], 0, 0)]:
        home = checks(2, *events)[0]
        assert len(list(unfounded_claims({0: (asker, 1), 2: (home, next_seq)}))) == count
