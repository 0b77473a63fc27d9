"""`rewindq demo`: the whole story on the embedded log, on real purchases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..demo.orders import sample
from ..demo.place import NotADemo, Place
from ..demo.running import CommandFailed
from ..demo.story import NothingFound, Story
from ..demo.telling import Teller
from .options import Call

#: With fewer, it may be that no two orders of a customer meet.
ORDERS_MIN = 200
FOLDER = Path(".rewindq/demo")


def demo(
    context: typer.Context,
    orders: Annotated[int, typer.Option(help="How many of the sample's purchases, 200 to 500.")] = 300,
    keep: Annotated[
        Path, typer.Option(help="The folder of its log, state and ledgers; an earlier demo goes.")
    ] = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and no story.")] = False,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no worker half way.")] = False,
) -> None:
    """Runs a shop, breaks it, finds a bug in its past and forks it mended: under a minute, without any network.

    Example: rewindq demo --orders 300
    """
    before = context.find_root().obj or {}
    if before.get("log"):
        raise typer.BadParameter("the demo has a log of its own, in the folder that --keep names", param_hint="--log")
    whole = len(sample())
    if not ORDERS_MIN <= orders <= whole:
        raise typer.BadParameter(f"{orders} is not from {ORDERS_MIN} to {whole}", param_hint="--orders")
    call = Call({"as_json": as_json or before.get("as_json")})
    teller = Teller(Console(quiet=True) if call.as_json else call.console)
    try:
        totals = Story(Place(keep), sample(orders), teller, kill=not no_kill).run()
    except NotADemo as error:
        call.fail(error, 4)
    except (CommandFailed, NothingFound, OSError) as error:
        call.fail(error, 1)
    if call.as_json:
        typer.echo(json.dumps(totals))
    raise typer.Exit(0 if totals["ok"] else 1)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(demo)
