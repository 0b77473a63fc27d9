"""Two executions of one attempt side by side: steps, decisions, effects, state, leases, outcome."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

from msgspec.structs import replace

from ..core import events as e
from ..core import values
from ..core.aggregate import DELETE
from ..core.position import Position
from ..core.requests import DONE, SAVE
from .recording import Attempt, Occurred, Recording, Step
from .replays import leases
from .world import shown

#: A field's value before either execution: `(aggregate, field) -> value`, DELETE where there is none.
BaseField = Callable[[str, str], Any]


def fork_recording(original: Recording, base: Position, own: list[e.EventRecord]) -> Recording:
    """A branch's whole execution: what it shares with its parent, then its own events."""
    records = {at.record.seq: at.record for at in original.events if at.record.seq < base.seq}
    shared = [_before(record, base.seq) for record in records.values()]
    return Recording.of(original.job_id, original.partition, [*shared, *own])


def _before(record: e.EventRecord, seq: int) -> e.EventRecord:
    return record if record.next_seq <= seq else replace(record, events=record.events[: seq - record.seq])


def diff(original: Recording, fork: Recording, number: int, base_field: BaseField) -> dict[str, Any]:
    """INTERFACE's `diff` of an attempt."""
    a, b = original.attempts[number], fork.attempts[number]
    gone = _never_asked(b)
    steps = _steps(a.steps, [step for step in b.steps if step.name not in gone])
    state = _state(a, b, base_field)
    held = _leases(original, a, fork, b)
    outcome = [a.outcome, b.outcome]
    same = outcome[0] == outcome[1] and not state and all(row["same"] for row in [*steps, *held])
    return {
        "same": same,
        "outcome": outcome,
        "failure": [_failure(a), _failure(b)],
        "steps": [_public(row) for row in steps],
        "decisions": [_decision(row) for row in steps if row["kind"] == "decision"],
        "effects": [_effect(row) for row in steps if row["kind"] == "effect"],
        "state": state,
        "leases": held,
    }


def _never_asked(attempt: Attempt) -> set[str]:
    """Shared steps that the fork's code passed over."""
    return {
        at.event.step or ""
        for at in attempt.events
        if isinstance(at.body, e.DivergenceFound) and at.body.kind == "missing_step"
    }


def _failure(attempt: Attempt) -> dict[str, Any] | None:
    if attempt.end is None or not isinstance(attempt.end.body, e.AttemptFailed):
        return None
    body = attempt.end.body
    return {"class": str(body.failure_class), "reason": body.reason, "step": attempt.end.event.step}


# --- steps ------------------------------------------------------------------------------------------------------


def _steps(a: list[Step], b: list[Step]) -> list[dict[str, Any]]:
    """Both lists aligned by step name."""
    matcher = SequenceMatcher(None, [s.name for s in a], [s.name for s in b], autojunk=False)
    rows: list[dict[str, Any]] = []
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        if tag == "equal":
            rows.extend(_row(x, y) for x, y in zip(a[a1:a2], b[b1:b2], strict=True))
            continue
        rows.extend(_row(x, None) for x in a[a1:a2])
        rows.extend(_row(None, y) for y in b[b1:b2])
    return rows


def _row(a: Step | None, b: Step | None) -> dict[str, Any]:
    step = a if a is not None else b
    assert step is not None
    return {
        "step": step.name,
        "kind": step.kind,
        "original": a,
        "fork": b,
        "same": a is not None and b is not None and _signature(a) == _signature(b),
    }


def _public(row: dict[str, Any]) -> dict[str, Any]:
    sides = {side: None if row[side] is None else summary(row[side]) for side in ("original", "fork")}
    return {"step": row["step"], "kind": row["kind"], **sides, "same": row["same"]}


def summary(step: Step) -> Any:
    """What a step came to, in short."""
    if step.first_answer is not None:
        return _answered(step, step.first_answer)
    at = step.find(e.StateChanged, e.WriteConflict, e.WriteFenced)
    if at is not None:
        refused = not isinstance(at.body, e.StateChanged)
        return (
            type(at.body).__name__
            if refused
            else {"version": at.event.resource_version, "changes": shown(at.body.changes)}
        )
    if step.kind == "effect":
        return effect_outcome(step)
    newest = step.events[-1]
    if step.kind == "load":
        return {"version": newest.event.resource_version}
    if step.kind in ("decision", "cache", "now"):
        return shown(newest.body.value)
    if step.kind == "lease":
        return [type(one.body).__name__ for one in step.events]
    return step.describe().get("digest")


def _answered(step: Step, at: Occurred) -> Any:
    """What the home of a resource elsewhere answered."""
    if at.body.outcome != DONE:
        return at.body.outcome
    asked = step.find(e.RemoteRequested)
    if step.kind == "save" and asked is not None:
        return {"version": at.event.resource_version, "changes": shown(asked.body.changes)}
    return {"version": at.event.resource_version} if step.kind == "load" else [type(at.body).__name__]


def _signature(step: Step) -> Any:
    described = {name: value for name, value in step.describe().items() if name != "step"}
    return described, _came_to(step)


def _came_to(step: Step) -> Any:
    if step.kind == "effect":
        return _answer(step)
    if step.kind == "decision":
        decided = step.find(e.DecisionRecorded)
        return None if decided is None else (decided.body.value, decided.body.because)
    if step.kind == "lease":
        answer = step.first_answer
        return step.find(e.LeaseAcquired) is not None or (answer is not None and answer.body.outcome == DONE)
    if step.kind == "note":
        noted = step.find(e.NoteRecorded)
        return None if noted is None else noted.body.fields
    return summary(step)


def _answer(step: Step) -> Any:
    at = step.outcome
    if at is None:
        return None
    if isinstance(at.body, e.EffectSucceeded | e.EffectSkipped):
        return "done", at.body.answer, at.body.answer_ref
    return type(at.body).__name__, getattr(at.body, "reason", None)


def effect_outcome(step: Step) -> str:
    """An effect's outcome in a word; `recorded` and `stub` are a fork's, `unknown` has no outcome."""
    at = step.outcome
    if at is None:
        return "unknown"
    if isinstance(at.body, e.EffectSucceeded):
        return at.body.evidence if at.body.evidence in ("recorded", "stub") else "succeeded"
    if isinstance(at.body, e.EffectFailed):
        return "blocked" if at.body.exception == "EffectBlocked" else "failed"
    words: dict[type[e.Body], str] = {
        e.EffectSkipped: "skipped",
        e.EffectInDoubt: "in_doubt",
        e.IdempotencyConflict: "conflict",
    }
    return words[type(at.body)]


def _decision(row: dict[str, Any]) -> dict[str, Any]:
    sides = {side: None if row[side] is None else _decided(row[side]) for side in ("original", "fork")}
    return {"step": row["step"], **sides, "same": row["same"]}


def _decided(step: Step) -> dict[str, Any]:
    body = step.events[-1].body
    return {"value": shown(body.value), "because": shown(body.because)}


def _effect(row: dict[str, Any]) -> dict[str, Any]:
    step: Step = row["fork"] if row["fork"] is not None else row["original"]
    last = step.events[-1]
    return {
        "step": row["step"],
        "name": last.event.side_effect,
        "key": last.body.key,
        "digest": [_digest(row["original"]), _digest(row["fork"])],
        "original": None if row["original"] is None else effect_outcome(row["original"]),
        "fork": None if row["fork"] is None else effect_outcome(row["fork"]),
        "same": row["same"],
    }


def _digest(step: Step | None) -> str | None:
    return None if step is None else step.describe().get("digest")


# --- state and leases -------------------------------------------------------------------------------------------


def _state(a: Attempt, b: Attempt, base_field: BaseField) -> list[dict[str, Any]]:
    """Fields that either execution wrote and that they left with different values."""
    left, right = _written(a), _written(b)
    rows = []
    for key, field in sorted(set(left) | set(right)):
        before = left[key, field] if (key, field) in left else base_field(key, field)
        after = right[key, field] if (key, field) in right else base_field(key, field)
        gone = before is DELETE or after is DELETE
        if (before is not after) if gone else (before != after):
            rows.append({"key": key, "field": field, "original": _value(before), "fork": _value(after)})
    return rows


def _value(value: Any) -> Any:
    return None if value is DELETE else values.plain(value)


def _written(attempt: Attempt) -> dict[tuple[str, str], Any]:
    """The final value of each field that an execution wrote."""
    final: dict[tuple[str, str], Any] = {}
    refused = {
        at.body.request_id for at in attempt.events if isinstance(at.body, e.RemoteAnswered) and at.body.outcome != DONE
    }
    for at in attempt.events:
        elsewhere = isinstance(at.body, e.RemoteRequested) and at.body.op == SAVE
        if not isinstance(at.body, e.StateChanged) and not (elsewhere and at.body.request_id not in refused):
            continue
        key = at.event.resource or at.record.resource or ""
        final.update({(key, name): value for name, value in values.decode(at.body.changes).items()})
        final.update({(key, name): DELETE for name in at.body.deleted})
    return final


def _leases(original: Recording, a: Attempt, fork: Recording, b: Attempt) -> list[dict[str, Any]]:
    left = {row["resource"]: row for row in leases(original, a)}
    right = {row["resource"]: row for row in leases(fork, b)}
    rows = []
    for resource in dict.fromkeys([*left, *right]):
        x, y = left.get(resource), right.get(resource)
        same = x is not None and y is not None and (x["token"] is None) == (y["token"] is None)
        rows.append({"resource": resource, "original": x, "fork": y, "same": same})
    return rows
