"""A person's word about an effect in doubt: what it decides, and what of it is refused."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.doubt import answer_refusal, decide_resolve, unresolved
from rewindq.engine.core.evolve import Moment, evolve_idempotency

KEY = "order:1/charge/7"
RECORD = s.Idempotency(s.IN_DOUBT, "sha256:1", "job", 2, "charge", reason="time-out")
COMMAND = e.ResolveCommand("c1", "seen at the gateway", "me", KEY, "succeeded", b'"r"', None)
PARKED = s.JobState(s.INVESTIGATION, 2)


def refusal(events: tuple[e.Event, ...]) -> str:
    (event,) = events
    assert isinstance(event.body, e.CommandRefused)
    assert (event.body.command, event.body.command_id, event.status) == ("resolve", "c1", "fail")
    return event.body.reason


@pytest.mark.parametrize(("outcome", "answer", "status"), [("succeeded", b'"r"', "success"), ("failed", None, "fail")])
@pytest.mark.parametrize("known", [s.IN_DOUBT, s.STARTED])
@pytest.mark.parametrize("holder", [PARKED, s.JobState(s.CANCELLED, 2), s.JobState(s.RETRYING, 2), None])
def test_what_is_in_doubt_is_resolved(
    outcome: str, answer: bytes | None, status: str, known: str, holder: s.JobState | None
) -> None:
    command = replace(COMMAND, outcome=outcome, answer=answer)
    (event,) = decide_resolve((7, replace(RECORD, status=known)), holder, command)
    assert event.body == e.EffectResolved(KEY, outcome, answer, None, "seen at the gateway", "me", "c1")
    assert (event.step, event.status) == ("charge", status)


@pytest.mark.parametrize(
    ("record", "holder", "command", "named"),
    [
        (None, None, COMMAND, "was ever started"),
        (replace(RECORD, status=s.DONE), PARKED, COMMAND, "recorded as succeeded"),
        (replace(RECORD, status=s.FAILED), PARKED, COMMAND, "recorded as failed"),
        (RECORD, s.JobState(s.RUNNING, 3), COMMAND, "attempt 3 of job job is running"),
        (RECORD, PARKED, replace(COMMAND, outcome="perhaps"), "'perhaps'"),
        (RECORD, PARKED, replace(COMMAND, outcome="failed"), "has no answer"),
    ],
)
def test_what_cannot_be_resolved_is_refused(
    record: s.Idempotency | None, holder: s.JobState | None, command: e.ResolveCommand, named: str
) -> None:
    assert named in refusal(decide_resolve(None if record is None else (7, record), holder, command))


def test_an_answer_that_cannot_be_recorded_is_refused() -> None:
    assert "too long" in refusal(decide_resolve((7, RECORD), PARKED, COMMAND, "too long"))
    assert answer_refusal(b'{"a":1}') is None
    assert answer_refusal(b'{"$decimal":"1.10"}') is None
    assert "canonical" in (answer_refusal(b'{"a": 1}') or "")
    assert "cannot be recorded" in (answer_refusal(b"{") or "")


def test_the_resolution_is_what_the_next_attempt_builds_on() -> None:
    at = Moment(9, 1_000, "w", "job", 2, "charge", None)
    request = d.EffectRequest("charge", "charge", KEY, "sha256:1", None, None, False, False)
    done = evolve_idempotency(RECORD, e.EffectResolved(KEY, "succeeded", b'"r"', None, "why", "me", "c1"), at)
    assert done is not None
    assert (done.status, done.answer, done.changed_at) == (s.DONE, b'"r"', 1_000)
    answered = d.decide_effect((9, done), request, "job", False)
    assert isinstance(answered, d.Answered)
    assert answered.skipped.status == "skipped"
    failed = evolve_idempotency(RECORD, e.EffectResolved(KEY, "failed", None, None, "why", "me", "c1"), at)
    assert failed is not None
    assert isinstance(d.decide_effect((9, failed), request, "job", False), d.Call)


def test_the_message_names_the_command_with_the_key_as_a_shell_takes_it() -> None:
    key = "order:it's/charge/a b"
    message = unresolved("charge", key, "x" * 5000)
    words = shlex.split(message.split("`")[1])
    assert words[:4] == ["rewindq", "effects", "resolve", key]
    assert len(message) < d.MESSAGE_MAX

    refused = d.decide_effect(
        (7, RECORD), d.EffectRequest("charge", "charge", KEY, "sha256:1", None, None, False, False), "job", False
    )
    assert isinstance(refused, d.Refused)
    assert f"effects resolve {KEY}" in refused.reason
