"""Which aggregates a revert goes to: what was changed, and what another partition may still have to decide."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core.requests import LOAD, SAVE
from rewindq.engine.runtime.reverts import changed_aggregates
from rewindq.engine.runtime.trace import TraceRecord


def trace(*events: tuple[int, str, e.Body]) -> list[TraceRecord]:
    """Records of one event each: (attempt, resource, body)."""
    return [
        TraceRecord("t", 0, seq, e.EventRecord(seq, seq, 0, 1, "w", "bad", attempt, (e.Event(body, resource=key),)))
        for seq, (attempt, key, body) in enumerate(events)
    ]


def asked(number: int, op: str = SAVE) -> e.RemoteRequested:
    return e.RemoteRequested(f"r{number}", op, 2)


def answered(number: int, outcome: str) -> e.RemoteAnswered:
    return e.RemoteAnswered(f"r{number}", SAVE, 2, outcome, 1)


WRITE = e.StateChanged(0, b"{}")


def test_writes_here_and_elsewhere_are_found_once() -> None:
    records = trace((1, "b:1", WRITE), (1, "a:1", asked(1)), (1, "a:1", WRITE), (1, "a:1", answered(1, "done")))
    assert changed_aggregates([*records, *trace((2, "b:1", WRITE))], None) == (["a:1", "b:1"], frozenset())


def test_what_was_asked_for_and_never_answered_may_still_be_written() -> None:
    records = trace((1, "a:1", asked(1)), (1, "b:1", asked(2)), (1, "b:1", answered(2, "conflict")))
    records += trace((1, "c:1", asked(3, LOAD)))
    assert changed_aggregates(records, None) == (["a:1"], frozenset({"a:1"}))


def test_one_attempt_alone() -> None:
    records = trace((1, "a:1", WRITE), (2, "b:1", WRITE))
    assert changed_aggregates(records, 2) == (["b:1"], frozenset())
