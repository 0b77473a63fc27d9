"""The command line as a person runs it: a program of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.testing import CliRunner

from rewindq.tools.cli import build

CHECKOUT = Path(__file__).parents[2]


@cache
def _program() -> typer.Typer:
    return build()


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        assert self.out, self.err
        return json.loads(self.out)


class Shell:
    """A folder in which commands are typed. Settings of the machine that runs the tests do not reach them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REWINDQ_")}
        self.environment = {**kept, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "80"}

    def command(self, *arguments: str) -> list[str]:
        """The program with its arguments."""
        return [sys.executable, "-m", "rewindq.tools.cli", *arguments]

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Ended:
        """Runs a command to its end, without a terminal."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def run_inside(self, *arguments: str, stdin: str = "") -> Ended:
        """The same within this process, which takes a tenth of the time."""
        unset = {name: None for name in os.environ if name.startswith("REWINDQ_")}
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(_program(), arguments, input=stdin, env={**unset, "COLUMNS": "80"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command and goes on."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
