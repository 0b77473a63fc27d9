"""`rewindq effects`: lists effects, and tells the outcome of one that is in doubt."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.core.refused import JsonRefused
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.commands import DONE, REFUSED, CommandOutcome, workers_running
from rewindq.engine.runtime.effects import Resolution, answer_of, effect_shown, find_effect, list_effects

from .errors import GuardRefused
from .jobs import RequestOption, TimeoutOption, open_past
from .options import Call, command
from .tables import short, short_time


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    effects = typer.Typer(
        name="effects",
        help="Lists calls to the outside, and tells what became of one that is in doubt.",
        no_args_is_help=True,
    )
    command(effects, "list")(list_)
    command(effects, "resolve")(resolve)
    app.add_typer(effects)


def list_(
    call: Call,
    in_doubt: Annotated[bool, typer.Option("--in-doubt", help="Only those whose outcome nobody knows.")] = False,
    job: Annotated[str | None, typer.Option("--job", metavar="J", help="Only those that this job started.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many, the newest.")] = 100,
) -> None:
    """Lists effects over all partitions by their keys, newest first.

    Example: rewindq effects list --in-doubt
    """
    with open_past(call) as past:
        found, total = list_effects(past, in_doubt=in_doubt, job_id=job, limit=limit)
    effects = [effect_shown(one) for one in found]
    call.show({"effects": effects, "total": total}, lambda console: _print_effects(console, effects, total))


def _print_effects(console: Console, effects: list[dict[str, Any]], total: int) -> None:
    for effect in effects:
        # The key stands whole, on a line of its own: it is what a person copies.
        console.print(effect["key"], markup=False, soft_wrap=True)
        why = f": {short(effect['reason'], 100)}" if effect["reason"] else ""
        undo = "" if effect["compensation"] is None else f" (compensation: {effect['compensation']})"
        told = f"  {effect['status']}{undo} since {short_time(effect['since'])} by job {effect['job_id']}{why}"
        console.print(told, markup=False)
    console.print(f"{len(effects)} of {total} effects" if len(effects) < total else f"{total} effects")


def resolve(
    call: Call,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The effect's whole key, as `effects list` shows it.")],
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="How it is known; it stays in the trace.")],
    succeeded: Annotated[
        str | None,
        typer.Option("--succeeded", metavar="RESULT_JSON", help="The call was done; its answer (null: none)."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The call was surely not done.")] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so (default: you).")] = None,
    timeout: TimeoutOption = 10.0,
    request_id: RequestOption = None,
) -> None:
    """Tells what became of an effect in doubt: the next attempt gets this answer, or calls anew. See `jobs retry`.

    Example: rewindq effects resolve order:7/charge/charge --succeeded '"receipt-1"' --reason 'seen at the gateway'
    """
    if (succeeded is None) is not failed:
        raise typer.BadParameter("give one of --succeeded RESULT_JSON and --failed")
    if not reason.strip():
        raise typer.BadParameter("--reason must say how it is known: it stays in the job's trace")
    resolution = Resolution(False) if succeeded is None else Resolution(True, _answer(succeeded))
    with call.deployment() as deployment, Client(deployment=deployment) as client:
        running = workers_running(deployment)
        outcome = client.resolve(key, resolution, reason, by, timeout if running else 0, request_id)
        effect = effect_shown(find_effect(client.past, key))
    if outcome.state == REFUSED:
        raise GuardRefused(f"effect {key}: {outcome.reason}")
    shown = effect | {"command": {"id": outcome.command_id, "state": outcome.state}}
    call.show(shown, lambda console: _print_outcome(console, effect, outcome, running))


def _answer(text: str) -> bytes | None:
    try:
        return answer_of(text)
    except JsonRefused as error:
        quoted = shlex.quote(json.dumps(text))
        raise typer.BadParameter(f"--succeeded is no JSON: {error}; a text is given as --succeeded {quoted}") from error


def _print_outcome(console: Console, effect: dict[str, Any], outcome: CommandOutcome, running: bool) -> None:
    console.print(f"{effect['key']} is {effect['status']}", markup=False, soft_wrap=True)
    if outcome.state == DONE:
        job = effect["job_id"]
        console.print(f"`rewindq jobs retry {job} --reason R` continues job {job}, if it waits for this", markup=False)
        return
    why = "its partition's worker has not answered yet" if running else "no worker runs"
    console.print(f"the command {outcome.command_id} is queued: {why}", markup=False)
