"""The command line."""

from __future__ import annotations

import importlib
import importlib.util
import logging

import typer

from .kafka import kafka_app
from .options import log_to_stderr, remember

#: Modules with `register(app)`, in the order in which their commands are listed.
_FAMILIES = ("submit", "worker", "jobs", "trace", "state", "replay", "rewind", "verify", "doctor", "demo")


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="rewindq",
        help="A replayable worker queue: every job leaves a trace that can be opened, replayed, forked and compared.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(remember)
    for name in _FAMILIES:
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            importlib.import_module(f".{name}", __name__).register(app)
    app.add_typer(kafka_app)
    return app


def main() -> None:
    """Runs the command line."""
    log_to_stderr(logging.WARNING)
    build()()
