"""`rewindq state`: an aggregate, now or then, in production or in a branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.core.aggregate import aggregate_key
from rewindq.engine.ports.store import View
from rewindq.engine.replay import branches
from rewindq.engine.runtime.past import NotFound, Past
from rewindq.engine.runtime.states import When, aggregate_shown, history_shown, resolve, version_seq
from rewindq.engine.store.opener import open_overlay_reader

from .jobs import open_past
from .options import Call, command
from .tables import FIELD_MAX, print_table, print_value, short


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "state")(state)


def state(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="TYPE/ID", help="The aggregate, for example customer/42.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="POSITION", help="As of this event, for example p3@1842.")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="As of this version.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="T", help="As of this time, RFC 3339 in UTC.")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="All versions up to then, with what each changed.")
    ] = False,
    branch: Annotated[str | None, typer.Option("--branch", metavar="B", help="As this branch sees it.")] = None,
) -> None:
    """Shows an aggregate as it is, or as it was at a position, version or time.

    Example: rewindq state customer/42 --time 2026-11-29T12:00:00Z
    """
    kind, slash, identity = name.partition("/")
    if not slash:
        raise typer.BadParameter(f"{name!r}: write TYPE/ID, for example customer/42")
    if sum(one is not None for one in (at, version, time)) > 1:
        raise typer.BadParameter("give one of --at, --version and --time")
    try:
        key = aggregate_key(kind, identity)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with open_past(call) as past, _view(past, key, branch) as view:
        when = When(at, version, time)
        seq = _branch_version(view, key, when) if branch is not None else resolve(past, key, when)
        partition = past.home(key).partition
        if history:
            versions = history_shown(view, partition, key, seq)
            call.show({"key": key, "versions": versions}, lambda console: _print_history(console, versions))
        else:
            shown = aggregate_shown(view, partition, key, seq)
            call.show(shown, lambda console: _print_state(console, shown))


def _branch_version(view: View, key: str, when: When) -> int | None:
    """In a branch only versions are asked for: its own events are no positions of the log."""
    if when.at is not None or when.time is not None:
        raise typer.BadParameter("--branch goes with --version or --history: a branch's state is that of its end")
    return None if when.version is None else version_seq(view, key, when.version)


@contextmanager
def _view(past: Past, key: str, name: str | None) -> Iterator[View]:
    home = past.home(key)
    if name is None:
        yield home.store
        return
    branch = branches.find_branch(past.deployment, name)
    if branch.base.partition != home.partition:
        raise NotFound(
            f"branch {name!r} left partition {branch.base.partition}; {key} is at home on {home.partition}, so the "
            "branch has no state of its own for it"
        )
    path = branches.folder(past.deployment, name) / "p0"
    reader = open_overlay_reader(str(path), home.store, branch.base.seq - 1)
    try:
        yield reader
    finally:
        reader.close()


def _print_state(console: Console, shown: dict[str, Any]) -> None:
    where = f" at {shown['position']}, written by {shown['writer']}" if shown["position"] else ": it did not exist then"
    console.print(f"{shown['key']} version {shown['version']}{where}", markup=False)
    print_value(console, shown["data"])


def _print_history(console: Console, versions: list[dict[str, Any]]) -> None:
    rows = (
        (one["version"], one["position"], one["job_id"], _step(one), one["fencing_token"], _changed(one))
        for one in versions
    )
    print_table(console, ("version", "position", "job", "step", "token", "changes"), rows)


def _step(version: dict[str, Any]) -> str | None:
    return version["step"] if version["reverted"] is None else f"reverted by {version['reverted']['by']}"


def _changed(version: dict[str, Any]) -> str:
    texts = [f"{field}={short(repr(value), FIELD_MAX)}" for field, value in version["changes"].items()]
    why = [] if version["reverted"] is None else [f"({version['reverted']['reason']})"]
    return " ".join([*texts, *(f"-{field}" for field in version["deleted"]), *why])
