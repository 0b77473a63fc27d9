"""What is written to stdout and stderr, and how the program ends when that fails or is interrupted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import typer

from .errors import FAILED
from .visible import escaped, visible

#: As shells report a program that a signal ended.
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


def document(data: Any) -> str:
    """One JSON document; escaped where it would steer a terminal, and throughout where UTF-8 cannot hold a text."""
    text = escaped(json.dumps(data, ensure_ascii=False))
    return text if text.isascii() or not _has_surrogate(text) else json.dumps(data)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def error_document(kind: str, message: str, code: int) -> str:
    """The JSON document of an error, whatever it came from."""
    return document({"error": {"kind": kind, "message": message, "exit": code}}) + "\n"


def tell(text: str) -> None:
    """A line on stderr. Where stderr itself fails there is nobody left to tell."""
    with contextlib.suppress(OSError):
        typer.echo(visible(text), err=True)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Ends the program when stdout cannot take what is written: with the reason, or silently where its reader left."""
    try:
        yield
        sys.stdout.flush()
    except SystemExit as ended:
        # Rich ends the program by itself when the reader left.
        if isinstance(ended.__context__, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from ended
        raise
    except OSError as error:
        _discard_stdout()
        if error.errno == errno.EPIPE:
            raise typer.Exit(BROKEN_PIPE) from error
        tell(f"error: standard output cannot be written: {error.strerror or error}")
        raise typer.Exit(FAILED) from error


def _discard_stdout() -> None:
    """What stdout still holds goes nowhere, or the interpreter would fail again when it flushes at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
