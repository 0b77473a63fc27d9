"""Compensations: which of a job's effects are to be undone when it has failed for good, and how that ends. Pure.

An effect is compensated when the effect under `{key}/compensate` has succeeded. What is asked for under its key from
then on is a new call, under `{key}/2` and so on: the other side must not take it for the one that was undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import events as e
from . import state as s
from .texts import bounded

#: Ends the key, name and step of a compensation.
SUFFIX = "/compensate"
#: Bounds of the parts of what the investigation entry says.
_FAILURE_MAX, _WHY_MAX = 700, 900

Lookup = Callable[[str], tuple[int, s.Idempotency] | None]


class Undoable(NamedTuple):
    """An effect that succeeded and has a compensation; `seq` is where it succeeded."""

    step: str
    key: str
    seq: int
    record: s.Idempotency


class Undo(NamedTuple):
    """Of a job: what is to be compensated, last success first, and what was. `doubted`: some outcome is unknown."""

    due: tuple[Undoable, ...] = ()
    done: tuple[Undoable, ...] = ()
    doubted: bool = False


def undo_of(job_id: str, open_effects: s.OpenEffects | None, lookup: Lookup) -> Undo:
    """What there is to undo of a job's effects."""
    due: list[Undoable] = []
    done: list[Undoable] = []
    doubted = False
    seen: set[str] = set()
    for step, (key, pending) in (open_effects.effects if open_effects is not None else {}).items():
        known = lookup(key)
        if known is None or known[1].job_id != job_id or key in seen:
            continue
        seen.add(key)  # a second step under the key was given the first one's answer
        seq, record = known
        doubted = doubted or pending or record.status in (s.STARTED, s.IN_DOUBT)
        if record.status == s.DONE and has_compensation(record):
            (done if is_compensated(key, record, lookup) else due).append(Undoable(step, key, seq, record))
    return Undo(_newest_first(due), _newest_first(done), doubted)


def _newest_first(found: Iterable[Undoable]) -> tuple[Undoable, ...]:
    return tuple(sorted(found, key=lambda one: one.seq, reverse=True))


def has_compensation(record: s.Idempotency) -> bool:
    """Whether the effect was called with `compensate=`."""
    return record.compensation is not None or record.compensation_ref is not None


def is_compensated(key: str, record: s.Idempotency, lookup: Lookup) -> bool:
    """Whether the effect's compensation has succeeded."""
    undone = lookup(key + SUFFIX) if has_compensation(record) else None
    return undone is not None and undone[1].status == s.DONE


def current_key(key: str, lookup: Lookup) -> str:
    """The key under which an effect is called now: `key`, or the one behind those that were compensated."""
    return next_key(
        key, lambda current: (known := lookup(current)) is not None and is_compensated(current, known[1], lookup)
    )


def next_key(key: str, undone: Callable[[str], bool]) -> str:
    """The first of `key`, `key/2`, `key/3` and so on under which nothing was undone."""
    number, current = 1, key
    while undone(current):
        number += 1
        current = f"{key}/{number}"
    return current


def being_undone(key: str, lookup: Lookup) -> s.Idempotency | None:
    """What is known of an effect's compensation that has begun and has no outcome: then its answer may not hold."""
    undo = lookup(key + SUFFIX)
    return undo[1] if undo is not None and undo[1].status in (s.STARTED, s.IN_DOUBT) else None


def same_intent(one: str, other: str) -> bool:
    """Whether two keys are the same but for what `current_key` adds."""
    return _intent(one) == _intent(other)


def _intent(key: str) -> tuple[list[str], bool]:
    parts = key.split("/")
    return parts[:3], len(parts) > 3 and key.endswith(SUFFIX)


def start_compensation(
    failure_class: str, reason: str, step: str | None, exception: str | None, undo: Undo
) -> tuple[e.Event, ...]:
    """The job has failed for good: what it did outside is undone before a person looks at it."""
    steps = tuple(one.step for one in undo.due)
    return (e.Event(e.CompensationStarted(failure_class, reason, exception, steps), step=step, status="fail"),)


def end_compensation(failed: s.Failure, undo: Undo, why: str | None) -> tuple[e.Event, ...]:
    """The job goes to a person; says which effects are undone and, with `why`, which are not."""
    done, left = (tuple(one.step for one in some) for some in (undo.done, undo.due))
    told = [bounded(failed.reason, _FAILURE_MAX)]
    if done:
        told.append(f"compensated: {', '.join(done)}")
    if left:
        told.append(f"not compensated: {', '.join(left)} ({bounded(why or 'unknown', _WHY_MAX)})")
        told.append("retrying the job goes on with that")
    reason = bounded("; ".join(told))
    ended = e.CompensationEnded(done, left, None if why is None else bounded(why))
    return (
        e.Event(ended, status="fail" if left else "compensated"),
        e.Event(e.JobFailed(failed.failure_class, reason), step=failed.step, status="fail"),
        e.Event(e.MovedToInvestigation(failed.failure_class, reason), step=failed.step, status="fail"),
    )
