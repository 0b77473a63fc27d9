"""`rewindq doctor`: can this work here?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.runtime.settings import Settings

from .examination import Check, examine
from .options import Call, command


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "doctor")(doctor)


def doctor(
    call: Call,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:ATTR", help="Checks that this app loads, too.")
    ] = None,
) -> None:
    """Examines log, broker settings, state folder, clocks and app, and says what to do about what is wrong.

    Example: rewindq doctor --app shop.jobs:app
    """
    settings: Settings = call.settings(app=app)
    checks = examine(settings)
    ill = [check for check in checks if not check.ok]
    listed = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in checks]
    shown: dict[str, Any] = {"ok": not ill, "checks": listed}
    call.show(shown, lambda console: _print_checks(console, checks))
    if ill:
        # A log that is only missing yet (5) is told apart from what has to be mended (1).
        raise typer.Exit(min(check.code for check in ill))


def _print_checks(console: Console, checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, style = ("ok  ", "green") if check.ok else ("FAIL", "red")
        console.print(f"[{style}]{mark}[/] {check.name:{width}}  ", end="")
        console.print(check.detail, markup=False)
