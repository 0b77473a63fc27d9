"""`rewindq replay`, `fork`, `diff` and `branch`: opening a job's past again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rewindq.engine.core.merge import GapInLog
from rewindq.engine.core.names import BadName
from rewindq.engine.core.position import BadPosition
from rewindq.engine.core.times import BadTime
from rewindq.engine.ports.log import GroupActive, LogError
from rewindq.engine.ports.store import StoreError
from rewindq.engine.replay import branches, replays
from rewindq.engine.replay.branches import BranchExists
from rewindq.engine.replay.forks import ForkOptions, diff_branch, fork
from rewindq.engine.replay.parent import Refused, Replayer
from rewindq.engine.replay.points import BadPoint, HalfDone, Wanted
from rewindq.engine.replay.recording import NoRecording
from rewindq.engine.replay.replays import Replayed
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.deployment import Deployment, NotCreated
from rewindq.engine.runtime.recover import StoreAhead
from rewindq.engine.runtime.settings import Settings, SettingsError, load_settings

from . import replay_tables as tables

DONE, FAILED, USAGE, DIFFERS, REFUSED, NOTHING = range(6)

_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((BadPoint, BadName, BadPosition, BadTime, AppError, SettingsError), USAGE),
    ((HalfDone, Refused, BranchExists, GroupActive), REFUSED),
    ((NoRecording, NotCreated), NOTHING),
    ((LogError, StoreError, StoreAhead, GapInLog), FAILED),
)
_EXPECTED = tuple(kind for kinds, _ in _CODES for kind in kinds)


class Mode(StrEnum):
    """What a replay may do."""

    TRACE = "trace"
    DRY_RUN = "dry-run"


class Cache(StrEnum):
    """What cache reads are answered with."""

    RECORDED = "recorded"
    BYPASS = "bypass"


_Job = Annotated[str, typer.Argument(help="The job's id.")]
_Log = Annotated[str | None, typer.Option("--log", help="The log's URL.")]
_Namespace = Annotated[str | None, typer.Option("--namespace", help="The namespace of topics and groups.")]
_State = Annotated[Path | None, typer.Option("--state-dir", help="The folder of stores and branches.")]
_Blobs = Annotated[Path | None, typer.Option("--blobs", help="The folder of large bodies.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
_Attempt = Annotated[int | None, typer.Option("--attempt", min=1, help="Which attempt; the newest by default.")]
_App = Annotated[str | None, typer.Option("--app", help="The code to run, MODULE:ATTRIBUTE.")]
_Cache = Annotated[
    Cache, typer.Option("--cache", help="Answer cache reads as recorded, or from their source's state then.")
]
_Limit = Annotated[float, typer.Option("--limit", min=0.1, help="Seconds that bound the handler.")]
_BranchName = Annotated[str, typer.Argument(help="The branch's name.")]

branch_app = typer.Typer(name="branch", help="Branches: the forks that there are.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("replay")(replay_command)
    app.command("fork")(fork_command)
    app.command("diff")(diff_command)
    app.add_typer(branch_app)


def replay_command(
    job: _Job,
    attempt: _Attempt = None,
    mode: Annotated[Mode, typer.Option("--mode", help="Only read, or run the handler on the recording.")] = Mode.TRACE,
    app: _App = None,
    cache: _Cache = Cache.RECORDED,
    limit: _Limit = replays.LIMIT,
    log: _Log = None,
    namespace: _Namespace = None,
    state_dir: _State = None,
    blobs: _Blobs = None,
    as_json: _Json = False,
) -> None:
    """Replays a job's attempt without touching anything.

    Example: rewindq replay order-17 --mode dry-run --app shop.jobs:app
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, blobs=blobs, app=app)
        if mode is Mode.TRACE:
            with Deployment.open(settings) as deployment:
                return replays.trace(deployment, job, attempt)
        place = _app_of(settings)
        bypass = cache is Cache.BYPASS
        # The process that will run the handler is split off before anything is opened.
        with Replayer.fork() as replayer, Deployment.open(settings) as deployment:
            return replays.dry_run(deployment, job, attempt, app=place, bypass=bypass, limit=limit, replayer=replayer)

    _finish(as_json, work, tables.trace if mode is Mode.TRACE else tables.dry_run)


def fork_command(
    job: _Job,
    attempt: _Attempt = None,
    before: Annotated[str | None, typer.Option("--before", help="Fork before this step (NAME or NAME#n).")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Fork before this position, p<partition>@<seq>.")] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="Fork behind version N of the job's resource, or TYPE/ID@N.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="Fork behind what was recorded up to this time.")] = None,
    app: _App = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="PATH=VALUE changes the payload; VALUE is JSON, or text.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The branch's name; a free one by default.")] = None,
    parent: Annotated[str, typer.Option("--from", help="The branch to fork from.")] = "main",
    cache: _Cache = Cache.RECORDED,
    limit: _Limit = replays.LIMIT,
    log: _Log = None,
    namespace: _Namespace = None,
    state_dir: _State = None,
    blobs: _Blobs = None,
    as_json: _Json = False,
) -> None:
    """Runs a job's attempt again in a branch of its own, and shows what would have been.

    Without a fork point it begins where the attempt did. Effects are answered from the recording where the request is
    the same, else by the app's stub, else blocked.

    Example: rewindq fork order-17 --before "save customer:9" --app shop.fixed:app
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, blobs=blobs, app=app)
        options = ForkOptions(
            Wanted(before, at, version, time),
            attempt,
            _changes(changes or []),
            name,
            cache is Cache.BYPASS,
            limit,
            parent,
        )
        place = _app_of(settings)
        with Replayer.fork() as replayer, Deployment.open(settings) as deployment:
            return fork(deployment, job, place, options, replayer)

    _finish(as_json, work, tables.fork)


def diff_command(
    job: _Job,
    branch: Annotated[str, typer.Option("--branch", help="The branch to set beside the original.")],
    log: _Log = None,
    namespace: _Namespace = None,
    state_dir: _State = None,
    blobs: _Blobs = None,
    as_json: _Json = False,
) -> None:
    """Shows a job's original execution beside a branch's. The exit status is 3 when they differ.

    Example: rewindq diff order-17 --branch fork-order-17-1
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, blobs=blobs)
        with Deployment.open(settings) as deployment:
            return diff_branch(deployment, job, branch)

    _finish(as_json, work, tables.diff)


@branch_app.command("list")
def branch_list(
    log: _Log = None, namespace: _Namespace = None, state_dir: _State = None, as_json: _Json = False
) -> None:
    """Lists branches with their base, origin and state.

    Example: rewindq branch list
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir)
        with Deployment.open(settings) as deployment:
            found = [branch.shown() for branch in branches.list_branches(deployment)]
        return Replayed({"branches": found}, False, False)

    _finish(as_json, work, tables.branch_list)


@branch_app.command("show")
def branch_show(
    name: _BranchName,
    log: _Log = None,
    namespace: _Namespace = None,
    state_dir: _State = None,
    as_json: _Json = False,
) -> None:
    """Shows one branch: lineage, topics, group, and where it stands.

    Example: rewindq branch show fork-order-17-1
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir)
        with Deployment.open(settings) as deployment:
            branch = branches.find_branch(deployment, name)
            stands = branches.standing(deployment, branch)
        return Replayed({**branch.shown(), "stands": stands}, False, False)

    _finish(as_json, work, tables.branch)


@branch_app.command("delete")
def branch_delete(
    name: _BranchName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: _Log = None,
    namespace: _Namespace = None,
    state_dir: _State = None,
    as_json: _Json = False,
) -> None:
    """Deletes a branch's topics, group and state. Its parent is left as it is.

    Example: rewindq branch delete fork-order-17-1 --yes
    """

    def work() -> Replayed:
        settings = load_settings(log=log, namespace=namespace, state_dir=state_dir)
        with Deployment.open(settings) as deployment:
            branches.find_branch(deployment, name)
            if not yes and not _confirmed(name):
                raise Refused(f"branch {name!r} was not deleted: confirm with --yes")
            deleted = branches.delete(deployment, name)
        return Replayed({"deleted": deleted.name, "topics": list(deleted.topics)}, False, False)

    _finish(as_json, work, tables.deleted)


def _confirmed(name: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Delete branch {name!r} with its topics and state?", err=True)


def _app_of(settings: Settings) -> str:
    if settings.app is None:
        raise AppError("no app to run: give --app MODULE:ATTRIBUTE, REWINDQ_APP or `app` in rewindq.toml")
    return settings.app


def _changes(given: list[str]) -> dict[str, str]:
    changes = {}
    for item in given:
        path, mark, value = item.partition("=")
        if not mark or not path:
            raise BadPoint(f"--set {item!r} must be PATH=VALUE, for example --set amount=12")
        changes[path] = value
    return changes


def _finish(as_json: bool, work: Callable[[], Replayed], show: Callable[[dict[str, Any]], None]) -> None:
    """Does the work, shows what it came to, and ends with INTERFACE's exit status."""
    try:
        done = work()
    except _EXPECTED as error:
        code = next(code for kinds, code in _CODES if isinstance(error, kinds))
        if as_json:
            typer.echo(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            typer.echo(f"error: {error}", err=True)
        raise typer.Exit(code) from None
    if as_json:
        typer.echo(json.dumps(done.shown, ensure_ascii=False))
    else:
        show(done.shown)
    raise typer.Exit(REFUSED if done.blocked else DIFFERS if done.differs else DONE)
