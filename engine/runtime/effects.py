"""Effects as people see them: which there are, which are in doubt, and telling the outcome of one."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.claims import claim_refusal
from ..core.doubt import resolve_refusal
from ..core.global_keys import is_global, record_key
from ..core.position import Position
from ..core.times import format_time
from .commands import (
    CommandOutcome,
    CommandRefusedError,
    answered,
    checked_reason,
    command_id_of,
    operator,
    send,
)
from .deployment import Deployment
from .past import FoundEffect, NotFound, Past


class Resolution(NamedTuple):
    """What a person says of an effect: `done`, with its answer in canonical form (None: it has none), or not done."""

    done: bool
    answer: bytes | None = None


def answer_of(text: str) -> bytes | None:
    """An answer given as JSON, in the form in which effects record theirs. Raises ValueRefused.

    What is not of a JSON type is written with its tag: `{"$decimal": "1.10"}`.
    """
    value = values.decode(values.encode_plain(values.parse_json(text)))
    return None if value is None else values.encode(value)


def find_effect(past: Past, key: str) -> FoundEffect:
    """What is known under an effect's full key. Raises NotFound."""
    parts = (past.partition(number) for number in range(past.deployment.partitions))
    found = next((found for part in parts if (found := part.effect(key)) is not None), None)
    if found is None:
        raise NotFound(f"no effect has the key {key!r}: `rewindq effects list` shows the keys that there are")
    return found


def list_effects(
    past: Past, *, in_doubt: bool = False, job_id: str | None = None, limit: int | None = None
) -> tuple[list[FoundEffect], int]:
    """The newest `limit` effects, of those in doubt or of a job only where asked, newest first; and how many."""
    found = [
        one
        for number in range(past.deployment.partitions)
        for one in past.partition(number).effects()
        if (not in_doubt or one.record.status == s.IN_DOUBT) and job_id in (None, one.record.job_id)
    ]
    shown = len(found) if limit is None else limit
    return heapq.nlargest(shown, found, key=lambda one: (one.record.changed_at, one.partition, one.seq)), len(found)


def effect_shown(found: FoundEffect) -> dict[str, Any]:
    """An effect for people and programs; `since` is when it came to be so."""
    record = found.record
    return {
        "key": found.key,
        "status": record.status,
        "job_id": record.job_id,
        "attempt": record.attempt,
        "step": record.step,
        "since": format_time(record.changed_at),
        "reason": record.reason,
        "partition": found.partition,
        "position": str(Position(found.partition, found.seq)),
        "request_digest": record.request_digest,
        "compensation": found.undo,
    }


def resolve_effect(
    past: Past,
    key: str,
    resolution: Resolution,
    reason: str,
    actor: str | None,
    timeout: float,
    request_id: str | None = None,
) -> CommandOutcome:
    """Tells the outcome of an effect in doubt; waits up to `timeout` seconds for the worker's answer.

    What was told under the same `request_id` before is not told again: its answer is given.
    Raises NotFound, CommandRefusedError when it is not in doubt or its job runs, BodyTooLarge, ValueError.
    """
    reason, deployment = checked_reason(reason), past.deployment
    found = find_effect(past, key)
    told = ("done" if resolution.done else "failed", values.digest(resolution.answer or b""))
    command_id = command_id_of(deployment, request_id, "resolve", key, *told)
    # The home of a global key keeps its answers under the key: it has no job to keep them with.
    places = (record_key(key), found.record.job_id) if is_global(key) else (found.record.job_id,)
    for place in places:
        known = answered(past, found.partition, place, command_id)
        if known is not None:
            return known
    holder = past.partition(found.partition).job(found.record.job_id)
    if is_global(key):
        refusal = claim_refusal(key, found.record)
    else:
        refusal = resolve_refusal(key, found.record, None if holder is None else holder.state)
    if refusal is not None:
        raise CommandRefusedError(refusal)
    command = _command(deployment, command_id, key, resolution, reason, actor)
    return send(past, found.partition, found.record.job_id, command, timeout)


def _command(
    deployment: Deployment, command_id: str, key: str, resolution: Resolution, reason: str, actor: str | None
) -> e.ResolveCommand:
    answer, ref = deployment.large(resolution.answer)
    return e.ResolveCommand(
        command_id,
        reason,
        actor or operator(),
        key,
        s.DONE if resolution.done else s.FAILED,
        answer,
        ref,
    )
