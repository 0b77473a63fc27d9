"""`rewindq revert`: takes back what a job changed, or shows what that would do."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.commands import workers_running
from rewindq.engine.runtime.reverts import QUEUED, Revert, plan_of

from .errors import REFUSED
from .jobs import TimeoutOption, open_past
from .options import Call, command
from .tables import print_table, short

#: Longest value shown of a field, in characters; `--json` has it whole.
_VALUE_MAX = 60


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "revert")(revert)


def revert(
    call: Call,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id. It must have ended.")],
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, metavar="N", help="Only what this attempt changed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Shows what would be done; nothing is sent.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="R", help="Why; it stays in the trace and in the state's history.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who asks for it (default: you).")] = None,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Takes back what a job changed in Rewindq's state: each field gets the value that it had before the job.

    A field that somebody else has written since is refused and told; the job's other fields go back nonetheless.

    A job that runs and has read what is reverted meets a write conflict, and is retried.

    Calls to the outside are never reverted: they are listed, with whether they were compensated.

    Twice is once. Exit 4 when a field was refused, or would be (--dry-run), and while the job has not ended; else 0.

    Example: rewindq revert order-7 --dry-run

    Example: rewindq revert order-7 --reason 'wrong price list'
    """
    if dry_run:
        with open_past(call) as past:
            done = plan_of(past, job, attempt)
        running = True
    else:
        if reason is None or not reason.strip():
            raise typer.BadParameter("--reason must say why: it stays in the trace (--dry-run needs none)")
        with call.deployment() as deployment, Client(deployment=deployment) as client:
            running = workers_running(deployment)
            done = client.revert(job, reason, by, timeout if running else 0, attempt)
    call.show(done.shown(), lambda console: _print(console, done, dry_run, running))
    if done.refused:
        raise typer.Exit(REFUSED)


def _print(console: Console, done: Revert, dry_run: bool, running: bool) -> None:
    if done.reverted:
        rows = (
            (row["key"], row["field"], _value(row, "from"), _value(row, "to"), row["version"]) for row in done.reverted
        )
        print_table(console, ("aggregate", "field", "from", "to", "version"), rows)
    console.print(_summary(done, dry_run), markup=False, soft_wrap=True)
    for row in done.refused:
        what = row["key"] if row["field"] is None else f"{row['key']} {row['field']}"
        where = "" if row["version"] is None else f" (version {row['version']} at {row['position']})"
        console.print(f"refused: {what}: {row['why']}{where}", markup=False, soft_wrap=True)
    if done.refused_untold:
        console.print(f"refused: {done.refused_untold} fields more; --dry-run names them all", markup=False)
    if done.state == QUEUED:
        why = "their workers have not answered yet" if running else "no worker runs"
        keys = short(", ".join(done.waiting), 300)
        then = f"The commands are kept; `rewindq revert {shlex.quote(done.job_id)} --dry-run` shows what is left to do"
        console.print(f"queued: {why}: {keys}. {then}", markup=False, soft_wrap=True)
    _print_effects(console, done)
    if dry_run:
        console.print("nothing was changed; what is written until the real run counts then", markup=False)


def _value(row: dict[str, Any], side: str) -> str:
    """A field's value; a dash where there is no such field."""
    if row["action"] == ("restore" if side == "from" else "delete"):
        return "-"
    return short(json.dumps(row[side], ensure_ascii=False), _VALUE_MAX)


def _summary(done: Revert, dry_run: bool) -> str:
    what = f"job {done.job_id}" if done.attempt is None else f"attempt {done.attempt} of job {done.job_id}"
    fields, refused = _count(len(done.reverted)), len(done.refused) + done.refused_untold
    if done.reverted or refused:
        verb = "would be reverted" if dry_run else "reverted"
        already = f", {len(done.already)} already reverted" if done.already else ""
        return f"{what}: {fields} {verb}, {refused} refused{already}"
    if done.state == QUEUED:
        return f"{what}: nothing is reverted yet"
    if done.already:
        return f"{what} is already reverted: nothing to change"
    return f"{what} has changed nothing that could be reverted"


def _count(number: int) -> str:
    return "1 field" if number == 1 else f"{number} fields"


def _print_effects(console: Console, done: Revert) -> None:
    if done.effects:
        console.print("calls to the outside are not reverted:", markup=False)
    for effect in done.effects:
        told = "compensated" if effect["compensated"] else effect["status"]
        if effect["status"] == "succeeded" and not effect["compensated"]:
            undo = effect["compensation"]
            told += ", not compensated" if undo is None else f", not compensated (its compensation is {undo})"
        console.print(f"  {effect['key']}: {told}", markup=False, soft_wrap=True)
        if effect["resolve"] is not None:
            tell = effect["resolve"]
            console.print(
                f"    find out, then `{tell} --succeeded RESULT_JSON --reason R` or `{tell} --failed --reason R`",
                markup=False,
                soft_wrap=True,
            )
