"""The command line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

#: Modules with `register(app)` and the commands that each adds, in the order in which they are listed.
FAMILIES = {
    "submit": ("submit",),
    "worker": ("worker",),
    "jobs": ("jobs",),
    "quarantine": ("quarantine",),
    "cron": ("cron",),
    "trace": ("trace",),
    "state": ("state",),
    "replay": ("replay", "fork", "diff", "branch"),
    "rewind": ("rewind",),
    "verify": ("verify",),
    "doctor": ("doctor",),
    "kafka": ("kafka",),
    "demo": ("demo",),
    "effects": ("effects",),
    "revert": ("revert",),
}


def build(words: Sequence[str] = ()) -> typer.Typer:
    """The command line; where `words` name commands, only theirs: importing all takes longer than most of them run."""
    import typer

    from .options import remember
    from .program import Program

    app = typer.Typer(
        name="rewindq",
        cls=Program,
        help="A replayable worker queue: every job leaves a trace that can be opened, replayed, forked and compared.",
        no_args_is_help=True,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(remember)
    named = {family for family, commands in FAMILIES.items() if not set(commands).isdisjoint(words)}
    for family in FAMILIES:
        if not named or family in named:
            importlib.import_module(f".{family}", __name__).register(app)
    return app


def main() -> None:
    """Runs the command line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the program ends
    try:
        # Everything else is imported in here: that takes most of a short command's time, and Ctrl-C may come in it.
        _run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _run() -> None:
    import logging

    from .options import log_to_stderr

    log_to_stderr(logging.WARNING)
    build(sys.argv[1:])()
