"""`rewindq replay`, `fork`, `diff` and `branch`: opening a job's past again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.replay import branches, replays
from rewindq.engine.replay.forks import ForkOptions, diff_branch, fork
from rewindq.engine.replay.parent import Refused, Replayer
from rewindq.engine.replay.points import Wanted
from rewindq.engine.replay.replays import Replayed
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

from . import replay_tables as tables
from .errors import DIFFERS, REFUSED
from .jobs import RequestOption
from .options import Call, command
from .program import Group


class Mode(StrEnum):
    """What a replay may do."""

    TRACE = "trace"
    DRY_RUN = "dry-run"


class Cache(StrEnum):
    """What cache reads are answered with."""

    RECORDED = "recorded"
    BYPASS = "bypass"


_Job = Annotated[str, typer.Argument(help="The job's id.")]
_Attempt = Annotated[int | None, typer.Option("--attempt", min=1, help="Which attempt; the newest by default.")]
_App = Annotated[str | None, typer.Option("--app", metavar="MODULE:ATTR", help="The code to run.")]
_Cache = Annotated[
    Cache, typer.Option("--cache", help="Answer cache reads as recorded, or from their source's state then.")
]
_Limit = Annotated[float, typer.Option("--limit", metavar="S", min=0.1, help="Seconds that bound the handler.")]
_BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch's name.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, "replay")(replay_command)
    command(app, "fork")(fork_command)
    command(app, "diff")(diff_command)
    branch = typer.Typer(name="branch", cls=Group, help="Branches: the forks that there are.", no_args_is_help=True)
    command(branch, "list")(branch_list)
    command(branch, "show")(branch_show)
    command(branch, "delete")(branch_delete)
    app.add_typer(branch)


def replay_command(
    call: Call,
    job: _Job,
    attempt: _Attempt = None,
    mode: Annotated[Mode, typer.Option("--mode", help="Only read, or run the handler on the recording.")] = Mode.TRACE,
    app: _App = None,
    cache: _Cache = Cache.RECORDED,
    limit: _Limit = replays.LIMIT,
) -> None:
    """Replays a job's attempt without touching anything.

    The exit status is 3 when the code diverges from the recording, 4 when it goes around ctx.

    Example: rewindq replay order-17 --mode dry-run --app shop.jobs:app
    """
    if mode is Mode.TRACE:
        with call.deployment() as deployment:
            _finish(call, replays.trace(deployment, job, attempt), tables.trace)
        return
    settings, place = _with_app(call, app)
    bypass = cache is Cache.BYPASS
    # The process that will run the handler is split off before anything is opened.
    with Replayer.fork() as replayer, Deployment.open(settings, create=False) as deployment:
        done = replays.dry_run(deployment, job, attempt, app=place, bypass=bypass, limit=limit, replayer=replayer)
    _finish(call, done, tables.dry_run)


def fork_command(
    call: Call,
    job: _Job,
    attempt: _Attempt = None,
    before: Annotated[str | None, typer.Option("--before", metavar="STEP", help="Before this step, as traced.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="POSITION", help="Before this event: p3@1842.")] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="N", help="Behind version N of the job's resource, or TYPE/ID@N."),
    ] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="T", help="Behind what was recorded up to T.")] = None,
    app: _App = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Changes the payload; VALUE is JSON, or else text."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The branch's name; a free one by default.")] = None,
    parent: Annotated[str, typer.Option("--from", metavar="BRANCH", help="The branch to leave from.")] = "main",
    cache: _Cache = Cache.RECORDED,
    limit: _Limit = replays.LIMIT,
    request_id: RequestOption = None,
) -> None:
    """Runs a job's attempt again in a branch of its own, and shows what would have been.

    Without a fork point it begins where the attempt did. Effects are answered from the recording where the request is
    the same, else by the app's stub, else blocked. The exit status is 3 when something differs.

    Example: rewindq fork order-17 --before 'save customer:9' --app shop.fixed:app
    """
    wanted = Wanted(before, at, version, time)
    bypass = cache is Cache.BYPASS
    options = ForkOptions(wanted, attempt, _changes(changes or []), name, bypass, limit, parent, request_id)
    settings, place = _with_app(call, app)
    with Replayer.fork() as replayer, Deployment.open(settings, create=False) as deployment:
        done = fork(deployment, job, place, options, replayer)
    _finish(call, done, tables.fork)


def diff_command(
    call: Call,
    job: _Job,
    branch: Annotated[str, typer.Option("--branch", metavar="BRANCH", help="The branch beside the original.")],
) -> None:
    """Shows a job's original execution beside a branch's. The exit status is 3 when they differ.

    Example: rewindq diff order-17 --branch fork-order-17-1
    """
    with call.deployment() as deployment:
        done = diff_branch(deployment, job, branch)
    _finish(call, done, tables.diff)


def branch_list(call: Call) -> None:
    """Lists branches with their base, origin and status.

    Example: rewindq branch list
    """
    with call.deployment() as deployment:
        found = [branch.shown() for branch in branches.list_branches(deployment)]
    call.show({"branches": found}, lambda console: tables.branch_list(console, found))


def branch_show(call: Call, name: _BranchName) -> None:
    """Shows one branch: lineage, topics, group, and where it stands.

    Example: rewindq branch show fork-order-17-1
    """
    with call.deployment() as deployment:
        branch = branches.find_branch(deployment, name)
        shown = {**branch.shown(), "stands": branches.standing(deployment, branch)}
    call.show(shown, lambda console: tables.branch(console, shown))


def branch_delete(
    call: Call, name: _BranchName, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Deletes a branch's topics, group and state. Its parent is left as it is.

    Example: rewindq branch delete fork-order-17-1 --yes
    """
    with call.deployment() as deployment:
        branches.find_branch(deployment, name)
        if not yes and not _confirmed(name):
            raise Refused(f"branch {name!r} was not deleted: confirm with --yes")
        deleted = branches.delete(deployment, name)
    shown = {"deleted": deleted.name, "topics": list(deleted.topics)}
    call.show(shown, lambda console: tables.deleted(console, shown))


def _confirmed(name: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Delete branch {name!r} with its topics and state?", err=True)


def _with_app(call: Call, app: str | None) -> tuple[Settings, str]:
    settings = call.settings(app=app)
    if settings.app is None:
        raise AppError("no app to run: give --app MODULE:ATTR, REWINDQ_APP, or `app` in rewindq.toml")
    return settings, settings.app


def _changes(given: list[str]) -> dict[str, str]:
    changes = {}
    for item in given:
        path, mark, value = item.partition("=")
        if not mark or not path:
            raise typer.BadParameter(f"--set {item!r}: write PATH=VALUE, for example --set amount=12")
        changes[path] = value
    return changes


def _finish(call: Call, done: Replayed, human: Callable[[Console, dict[str, Any]], None]) -> None:
    """Shows what a replay came to and ends with its exit status."""
    call.show(done.shown, lambda console: human(console, done.shown))
    if done.blocked or done.differs:
        raise typer.Exit(REFUSED if done.blocked else DIFFERS)
