"""`rewindq verify`: checks a real log."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from rewindq.engine.runtime.verify import verify

from .errors import DIFFERS
from .options import Call, command
from .tables import print_table


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "verify")(verify_command)


def verify_command(call: Call) -> None:
    """Checks the invariants on the whole log, rebuilds every store from nothing beside the live one and compares them.

    A worker may run meanwhile. The exit status is 3 when anything is found.

    Example: rewindq verify
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=call.progress, transient=True, disable=not call.progress.is_terminal)
    with call.deployment() as deployment, bar as progress:
        task = progress.add_task("reading")
        report = verify(deployment, lambda p, n: progress.update(task, description=f"partition {p}: {n} events read"))
    call.show(report, lambda console: _print_report(console, report))
    if not report["ok"]:
        raise typer.Exit(DIFFERS)


def _print_report(console: Console, report: dict[str, Any]) -> None:
    statuses = ", ".join(f"{count} {status}" for status, count in report["by_status"].items())
    console.print(f"{report['events']} events, {report['jobs']} jobs" + (f": {statuses}" if statuses else ""))
    for note in report["notes"]:
        console.print(f"note: {note}", markup=False)
    if report["violations"]:
        rows = ((one["kind"], one["position"], one["job_id"], one["detail"]) for one in report["violations"])
        print_table(console, ("violation", "position", "job", "detail"), rows)
        console.print(f"{report['violations_total']} violations")
    if report["digest"] is not None:
        same = "equal" if report["digest"] == report["rebuilt_digest"] else "DIFFERENT"
        console.print(f"live stores  {report['digest']}\nrebuilt      {report['rebuilt_digest']}  {same}")
    console.print("ok" if report["ok"] else "not ok")
