"""What all commands share: the global options, before or after the command's name, output, and how errors end it."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import structlog
import typer
from rich.console import Console

from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings, load_settings

from .errors import exit_code
from .output import document, error_document, tell, writing
from .visible import VisibleConsole

Command = TypeVar("Command", bound=Callable[..., None])

LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        help="sqlite:///path or kafka://host:port. Environment: REWINDQ_LOG.",
        rich_help_panel="Global options",
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", help="Prefix of all topics and groups.", rich_help_panel="Global options"
    ),
]
StateDirOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="Where workers keep their stores.", rich_help_panel="Global options"
    ),
]
BlobsOption = Annotated[
    Path | None,
    typer.Option("--blobs", metavar="DIR", help="Where large bodies are kept.", rich_help_panel="Global options"),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="One JSON document on stdout, nothing else there.", rich_help_panel="Global options"),
]

_GLOBAL: dict[str, tuple[Any, Any]] = {
    "log": (LogOption, None),
    "namespace": (NamespaceOption, None),
    "state_dir": (StateDirOption, None),
    "blobs": (BlobsOption, None),
    "as_json": (JsonOption, False),
}
#: Width of tables where there is no terminal: logs and CI show about this much.
_WIDTH = 120


class Call:
    """One call of a command: its global options, and where its output goes."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.as_json: bool = bool(given.pop("as_json", False))
        self._given = given
        width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", _WIDTH))
        self.console = VisibleConsole(width=width, highlight=False, soft_wrap=False, emoji=False)
        self.progress = VisibleConsole(stderr=True, highlight=False, emoji=False)

    def settings(self, **more: Any) -> Settings:
        """The settings, `more` counting as given on the command line. Raises SettingsError."""
        return load_settings(**self._given, **more)

    def deployment(self, *, create: bool = False) -> Deployment:
        """The deployment, opened; close it. Only with `create` an embedded log is made that is not there.

        Raises SettingsError, LogUnavailable, NotCreated.
        """
        return Deployment.open(self.settings(), create=create)

    def show(self, data: Any, human: Callable[[Console], object]) -> None:
        """Ends a command with its answer: JSON, or what `human(console)` prints."""
        with writing():
            if self.as_json:
                sys.stdout.write(document(data) + "\n")
            else:
                human(self.console)

    def fail(self, error: Exception, code: int) -> NoReturn:
        """Ends a command with an expected error: one line on stderr, and with --json a document on stdout."""
        message = " ".join(str(error).split()) or type(error).__name__
        if self.as_json:
            with writing():
                sys.stdout.write(error_document(type(error).__name__, message, code))
        tell(f"error: {message}")
        raise typer.Exit(code)


def command(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
    """Registers a function as a command of `app`; its first parameter gets the `Call`, the rest are Typer's.

    Its help is its docstring. What it raises of the expected errors ends the program with their exit code.
    """

    def register(function: Command) -> Command:
        own = inspect.signature(function, eval_str=True)
        parameters = list(own.parameters.values())[1:]
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in _GLOBAL.items()
            if key not in own.parameters
        ]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        @functools.wraps(function)
        def run(ctx: typer.Context, **values: Any) -> None:
            given = {key: values.pop(key) for key in _GLOBAL if key in values}
            _run(Call(_merged(ctx, given)), function, values)

        del run.__wrapped__
        merged = [_keyword(one) for one in (*parameters, *shared, context)]
        run.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in merged}
        app.command(name, **settings)(run)
        return function

    return register


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _merged(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Options behind the command's name win over those before it."""
    before: dict[str, Any] = ctx.find_root().obj or {}
    return {**before, **{key: value for key, value in given.items() if value not in (None, False)}}


def remember(
    ctx: typer.Context,
    log: LogOption = None,
    namespace: NamespaceOption = None,
    state_dir: StateDirOption = None,
    blobs: BlobsOption = None,
    as_json: JsonOption = False,
    version: Annotated[bool, typer.Option("--version", help="Shows Rewindq's version and ends.")] = False,
) -> None:
    """Keeps the global options that stand before the command's name."""
    ctx.obj = {"log": log, "namespace": namespace, "state_dir": state_dir, "blobs": blobs, "as_json": as_json}
    if version:
        number = metadata.version("rewindq")
        Call({"as_json": as_json}).show({"version": number}, lines([f"rewindq {number}"]))
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")


def _run(call: Call, function: Callable[..., None], values: dict[str, Any]) -> None:
    try:
        function(call, **values)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        call.fail(error, code)


def log_to_stderr(level: int) -> None:
    """Sends the program's log lines to stderr, coloured only on a terminal."""
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def lines(texts: Iterable[str]) -> Callable[[Console], None]:
    """Human output of plain lines."""

    def show(console: Console) -> None:
        for text in texts:
            console.print(text, markup=False)

    return show
