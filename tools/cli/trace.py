"""`rewindq trace`: a job's structured trace, in log order."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.runtime.trace import trace_shown

from .jobs import open_past
from .options import Call, command
from .tables import FIELD_MAX, is_odd_time, print_table, short

#: What went wrong is never cut.
_WHOLE = frozenset({"reason"})
#: Body fields that say little to a person, or that have a column of their own.
_QUIET = frozenset(
    {
        "digest",
        "request_digest",
        "payload_ref",
        "answer_ref",
        "result_ref",
        "source_offset",
        "kind",
        "submitted_at",
        "cycle",
    }
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "trace")(trace)


def trace(
    call: Call,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=0, metavar="N", help="Only this attempt; 0: before the first.")
    ] = None,
) -> None:
    """Shows every event about a job: when it was queued, who held what, each step, decision, call and change.

    Example: rewindq trace order-7
    """
    with open_past(call) as past:
        shown = trace_shown(past, job, attempt)
    call.show(shown, lambda console: _print_trace(console, shown["events"]))


def _print_trace(console: Console, events: list[dict[str, Any]]) -> None:
    first = events[0]["timestamp"] if events else ""
    console.print(f"{first} to {events[-1]['timestamp']}" if events else "no events")
    rows = (
        (event["position"] or "", event["attempt"] or "", _clock(event["timestamp"]), event["type"], _detail(event))
        for event in events
    )
    print_table(console, ("position", "try", "mm:ss", "event", "detail"), rows)


def _detail(event: dict[str, Any]) -> str:
    """The step, what it was about and how it went."""
    parts = [event["step"] or ""]
    if event["resource_version"] is not None:
        parts.append(f"{event['resource']} v{event['resource_version']}")
    if event["fencing_token"] is not None:
        parts.append(f"token {event['fencing_token']}")
    if event["status"] != "success":
        parts.append(event["status"])
    parts += [
        f"{name}={_value(name, value)}"
        for name, value in event["body"].items()
        if value is not None and value not in ([], "") and name not in _QUIET
    ]
    return " ".join(part for part in parts if part)


def _value(name: str, value: Any) -> str:
    if name == "error" and isinstance(value, dict):
        # The exception itself is told by the reason; `--json` has its causes and attributes.
        return short(f"[{value.get('rule')}]", FIELD_MAX)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if name in _WHOLE else short(text, FIELD_MAX)


def _clock(timestamp: str) -> str:
    return timestamp if is_odd_time(timestamp) else timestamp[14:26]
