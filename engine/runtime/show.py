"""How jobs and events are shown: the JSON forms that the command line and the client give."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from ..core import events as e
from ..core import values
from ..core.refused import DEPTH_MAX
from ..core.secrets import masked
from ..core.times import BadTime, format_time
from .past import FoundJob
from .quarantines import Quarantines

#: Fields of bodies that hold plain JSON, and those that hold values in canonical form (`values.encode`).
_PLAIN_JSON = frozenset({"payload"})
_CANONICAL = frozenset(
    {
        "result",
        "value",
        "because",
        "request",
        "answer",
        "changes",
        "fields",
        "expected",
        "got",
        "error",
        "refused",
        "cycle",
    }
)
#: Longest part shown of bytes that cannot be read, in characters or bytes.
RAW_MAX = 1000


def job_shown(found: FoundJob, quarantines: Quarantines | None = None) -> dict[str, Any]:
    """A job in INTERFACE's form `job`; with `quarantines`, `held` says why none of its attempts starts."""
    head, state = found.head, found.state
    failure = state.failure
    return {
        "job_id": found.job_id,
        "trace_id": head.trace_id or found.job_id,
        "type": head.type,
        "status": state.status,
        "held": None if quarantines is None else quarantines.held(found),
        "attempt": state.attempt,
        "resource": head.resource,
        "partition": found.partition,
        "submitted_at": time_shown(head.submitted_at),
        "finished_at": time_or_none(state.finished_at),
        "failure": None
        if failure is None
        else {"class": failure.failure_class, "reason": failure.reason, "step": failure.step},
        "waits": found.waits,
    }


def time_shown(us: int) -> str:
    """An instant as RFC 3339; one that no calendar has, as its microseconds: a producer's wrong clock hides nothing."""
    try:
        return format_time(us)
    except BadTime:
        return f"{us}us"


def time_or_none(us: int | None) -> str | None:
    """An instant as `time_shown` gives it, None for None."""
    return None if us is None else time_shown(us)


def payload_shown(data: bytes | None, secrets: tuple[str, ...]) -> Any:
    """A payload in JSON's types, its secrets masked; None where there is none.

    Bytes that are no JSON, or nested over `DEPTH_MAX` levels, came from elsewhere: they are shown as they are, bounded,
    as `{"raw": text}` or `{"base64": text}` with `"bytes"`, their number. Where there are secrets, that number alone.
    """
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _raw(data, secrets)
    return _raw(data, secrets) if _too_deep(value, DEPTH_MAX) else masked(value, secrets)


def _too_deep(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(left == 1 or _too_deep(item, left - 1) for item in inner if isinstance(item, dict | list))


def _raw(data: bytes, secrets: tuple[str, ...]) -> dict[str, Any]:
    if secrets:
        return {"bytes": len(data)}
    try:
        return {"raw": data.decode()[:RAW_MAX], "bytes": len(data)}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data[:RAW_MAX]).decode(), "bytes": len(data)}


def value_shown(data: bytes | None) -> Any:
    """Canonical bytes in JSON's types, None for None."""
    return None if data is None else values.plain(values.decode(data))


def body_shown(body: e.Body, secrets: tuple[str, ...]) -> dict[str, Any]:
    """A body's fields in JSON's types: values decoded, payload secrets masked, other bytes as text or base64."""
    fields = msgspec.structs.asdict(body)
    if isinstance(body, e.SubmissionHeld):
        # The whole submission, its payload included, as bytes in which nothing can be masked.
        fields["original"] = f"{len(body.original)} bytes".encode()
    return {name: _field(name, value, secrets) for name, value in fields.items()}


def _field(name: str, value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, bytes):
        return value
    try:
        if name in _PLAIN_JSON:
            return payload_shown(value, secrets)
        if name in _CANONICAL:
            return value_shown(value)
        return value.decode()
    except (ValueError, RecursionError):
        return {"base64": base64.b64encode(value).decode()}


def event_shown(
    record: e.EventRecord, index: int, topic: str, partition: int, offset: int, secrets: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One event of a record in INTERFACE's form `event`: the envelope, its place and its body.

    `position` is None for inputs, which no owner has numbered; `elapsed` is microseconds of the attempt's handler.
    """
    event = record.events[index]
    numbered = record.seq != e.UNNUMBERED
    seq = record.seq + index if numbered else None
    position = f"p{partition}@{seq}" if numbered else None
    return {
        "event_id": position or f"{topic}/p{partition}/{offset}",
        "type": type(event.body).__name__,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "position": position,
        "seq": seq,
        "lamport": record.lamport + index,
        "branch": record.branch,
        "trace_id": record.trace_id or record.job_id,
        "job_id": record.job_id,
        "attempt": record.attempt,
        "step": event.step,
        "timestamp": time_shown(record.timestamp),
        "elapsed": event.elapsed,
        "epoch": record.epoch,
        "worker_id": record.worker_id,
        "causation_id": record.causation_id,
        "correlation_id": record.correlation_id or record.trace_id or record.job_id,
        "resource": event.resource or record.resource,
        "resource_version": event.resource_version,
        "fencing_token": event.fencing_token,
        "input_ref": event.input_ref,
        "output_ref": event.output_ref,
        "side_effect": event.side_effect,
        "status": event.status,
        "code_version": record.code_version,
        "body": body_shown(event.body, secrets),
    }
