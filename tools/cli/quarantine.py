"""`rewindq quarantine`: holds a job type, lists what is held, lifts it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.commands import workers_running
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.quarantines import QuarantineOutcome, Quarantines

from .jobs import RequestOption, TimeoutOption, open_past
from .options import Call, command
from .tables import print_table, short_time

TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="The job type.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="R", help="Why; it stays in the log, jobs show it.")]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who asks for it; the user and the machine by default.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    quarantine = typer.Typer(name="quarantine", help="Holds a job type until a person lifts it.", no_args_is_help=True)
    command(quarantine, "add")(add)
    command(quarantine, "list")(list_quarantines)
    command(quarantine, "lift")(lift)
    app.add_typer(quarantine)


def add(
    call: Call,
    type_: TypeArgument,
    reason: ReasonOption,
    by: ByOption = None,
    timeout: TimeoutOption = 10.0,
    request_id: RequestOption = None,
) -> None:
    """Holds all jobs of a type: no attempt starts on any worker, retries included; what runs may finish.

    Held jobs stay where they are in the queue, and go on in the same order when the quarantine is lifted.

    Example: rewindq quarantine add charge_order --reason 'gateway charges twice'
    """
    _check(reason)
    with call.deployment() as deployment, Client(deployment=deployment) as client:
        running = workers_running(deployment)
        outcome = client.quarantine(type_, reason, by, timeout if running else 0, request_id)
        held = next((one["held"] for one in client.quarantines() if one["type"] == type_), 0)
        shown = _shown(deployment, type_, outcome, running) | {"held": held}
    call.show(shown, lambda console: _print_outcome(console, shown, f"{type_} is quarantined, {held} jobs are held"))


def lift(
    call: Call,
    type_: TypeArgument,
    reason: ReasonOption,
    by: ByOption = None,
    timeout: TimeoutOption = 10.0,
    request_id: RequestOption = None,
) -> None:
    """Lets the jobs of a type run again, in the order in which they waited.

    Example: rewindq quarantine lift charge_order --reason 'gateway mended'
    """
    _check(reason)
    with call.deployment() as deployment, Client(deployment=deployment) as client:
        running = workers_running(deployment)
        outcome = client.lift_quarantine(type_, reason, by, timeout if running else 0, request_id)
        shown = _shown(deployment, type_, outcome, running)
    call.show(shown, lambda console: _print_outcome(console, shown, f"{type_} runs again"))


def _check(reason: str) -> None:
    if not reason.strip():
        raise typer.BadParameter("--reason must say why: it stays in the log")


def _shown(deployment: Deployment, type_: str, outcome: QuarantineOutcome, running: bool) -> dict[str, Any]:
    return {
        "type": type_,
        "command_id": outcome.command_id,
        "state": "queued" if outcome.waiting else "done",
        "partitions": deployment.partitions,
        "recorded": list(outcome.recorded),
        "waiting": list(outcome.waiting),
        "workers_running": running,
    }


def _print_outcome(console: Console, shown: dict[str, Any], done: str) -> None:
    console.print(done, markup=False)
    recorded, waiting = len(shown["recorded"]), shown["waiting"]
    console.print(f"recorded on {recorded} of {shown['partitions']} partitions", markup=False)
    if waiting:
        why = "their owners have not answered yet" if shown["workers_running"] else "no worker runs"
        console.print(
            f"not recorded yet on {_places(waiting)}: {why}. The command is kept, and whoever owns them next "
            "carries it out before any attempt starts",
            markup=False,
        )


def _places(partitions: list[int]) -> str:
    return ", ".join(f"p{partition}" for partition in partitions)


def list_quarantines(call: Call) -> None:
    """Lists the job types that are quarantined now, with what they hold.

    Example: rewindq quarantine list --json
    """
    with open_past(call) as past:
        found = Quarantines(past).shown()
    call.show({"quarantines": found}, lambda console: _print_list(console, found))


def _print_list(console: Console, found: list[dict[str, Any]]) -> None:
    headings = ("type", "since", "held", "recorded on", "by", "reason")
    if not found:
        console.print("nothing is quarantined")
        return
    print_table(console, headings, map(_row, found))


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    total = len(one["recorded"]) + len(one["queued"])
    return (
        one["type"],
        short_time(one["since"]),
        one["held"],
        f"{len(one['recorded'])} of {total}",
        one["by"],
        one["reason"],
    )
