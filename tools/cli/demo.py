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

ORDERS_MIN = 50


def demo(
    orders: Annotated[int, typer.Option(help="How many of the sample's purchases, 50 to 500.")] = 300,
    keep: Annotated[Path, typer.Option(help="The folder of its log, state and ledgers; an earlier demo goes.")] = Path(
        ".rewindq/demo"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and no story.")] = False,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no worker half way.")] = False,
) -> None:
    """Runs a shop, breaks it, finds a bug in its past and forks it mended: under a minute, without any network.

    Example: rewindq demo --orders 300
    """
    taken = sample(orders if orders > 0 else None)
    if not ORDERS_MIN <= orders <= len(sample()):
        raise typer.BadParameter(f"{orders} is not from {ORDERS_MIN} to {len(sample())}", param_hint="--orders")
    teller = Teller(Console(quiet=as_json, highlight=False))
    try:
        totals = Story(Place(keep), taken, teller, kill=not no_kill).run()
    except NotADemo as error:
        _fail(str(error), as_json, 4)
    except (CommandFailed, NothingFound, OSError) as error:
        _fail(str(error), as_json, 1)
    if as_json:
        typer.echo(json.dumps(totals))
    raise typer.Exit(0 if totals["ok"] else 1)


def _fail(reason: str, as_json: bool, code: int) -> None:
    if as_json:
        typer.echo(json.dumps({"ok": False, "error": {"thing": "demo", "reason": reason}}))
    typer.echo(f"error: demo: {reason}", err=True)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(demo)
