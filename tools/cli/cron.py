"""`rewindq cron`: the periodic jobs that workers plan."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console

from rewindq.engine.runtime.schedules import schedules_shown

from .jobs import open_past
from .options import Call, command
from .tables import print_table


def register(app: typer.Typer) -> None:
    """Adds the command."""
    cron = typer.Typer(name="cron", help="Periodic jobs.", no_args_is_help=True)
    cron.callback()(_group)
    command(cron, "list")(list_schedules)
    app.add_typer(cron)


def _group() -> None:
    """Periodic jobs, declared with `@app.cron` and planned by the workers."""


def list_schedules(call: Call) -> None:
    """Lists the schedules that workers have recorded: the next instant, and the newest one that was planned.

    Example: rewindq cron list --json
    """
    with open_past(call) as past:
        found = schedules_shown(past)
    call.show({"schedules": found}, lambda console: _print(console, found))


def _print(console: Console, found: list[dict[str, Any]]) -> None:
    if not found:
        console.print("no schedules: a worker whose app has @app.cron records them when it starts")
        return
    headings = ("schedule", "type", "expression", "zone", "missed", "last planned", "next")
    rows = (
        (
            one["name"],
            one["type"],
            one["expression"],
            one["tz"],
            one["missed"],
            _minute(one["last"]),
            _minute(one["next"]),
        )
        for one in found
    )
    print_table(console, headings, rows)


def _minute(text: str | None) -> str:
    return "" if text is None else f"{text[:10]} {text[11:19]}Z"
