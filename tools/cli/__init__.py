"""The command line."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence

import typer

from .options import log_to_stderr, remember

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
}


def build(words: Sequence[str] = ()) -> typer.Typer:
    """The command line; where `words` name commands, only theirs: importing all takes longer than most of them run."""
    app = typer.Typer(
        name="rewindq",
        help="A replayable worker queue: every job leaves a trace that can be opened, replayed, forked and compared.",
        no_args_is_help=True,
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
    log_to_stderr(logging.WARNING)
    build(sys.argv[1:])()
