"""How the program ends when its output fails, nobody reads it, or it is interrupted: never by a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.cli import Shell

pytestmark = pytest.mark.process
FULL = Path("/dev/full")


def ended(shell: Shell, *arguments: str, stdout: int) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout is this descriptor."""
    done = subprocess.run(
        shell.command(*arguments),
        cwd=shell.folder,
        # With buffers, as people run it: what is left in them fails once more at the interpreter's end.
        env={**shell.environment, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("jobs", "list"), ("jobs", "list", "--json"), ("--help",), ("jobs", "show", "nope", "--json")]
)
def test_an_output_that_is_full(bank: Shell, arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        code, told = ended(bank, *arguments, stdout=full.fileno())
    assert (code, told) == (1, "error: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("arguments", [("jobs", "list"), ("trace", "d1", "--json"), ("jobs", "--help")])
def test_a_reader_that_left(bank: Shell, arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, told = ended(bank, *arguments, stdout=writing)
    finally:
        os.close(writing)
    assert (code, told) == (128 + signal.SIGPIPE, "")


def test_a_stdout_that_is_closed(bank: Shell) -> None:
    command = " ".join(bank.command("jobs", "list"))
    done = subprocess.run(
        ["sh", "-c", f"{command} >&- 2>&-"], cwd=bank.folder, env=bank.environment, timeout=100, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("arguments", [("trace", "e2"), ("jobs", "list", "--json")])
def test_ctrl_c_while_the_program_comes_to_life(bank: Shell, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A module that every command imports stands still until the interrupt has come."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    told = interrupted(bank, tmp_path, *arguments, at="rewindq.tools.cli.options")
    assert told == ""


@pytest.mark.parametrize("masked", ["", "yes"], ids=["as it is", "as another error"])
@pytest.mark.parametrize("arguments", [("trace", "e2"), ("jobs", "list", "--json")])
def test_ctrl_c_while_a_command_reads(
    bank: Shell, tmp_path: Path, arguments: tuple[str, ...], masked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masked, as the Kafka client's constructors do it: what was raised is an error that has nothing to do with it."""
    monkeypatch.setitem(bank.environment, "INTERRUPT_MASKED", masked)
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    told = interrupted(bank, tmp_path, *arguments, at="rewindq.engine.log.sqlite")
    if "--json" in arguments:
        assert json.loads(told)["error"] == {"kind": "Interrupted", "message": "interrupted", "exit": 130}


#: Sends this very process the interrupt of a terminal when a module is about to be imported.
INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if os.environ.get("INTERRUPT_MASKED"):
                    raise TypeError("expected a property's name") from None
                raise

sys.meta_path.insert(0, Interrupting())
"""


def interrupted(shell: Shell, folder: Path, *arguments: str, at: str) -> str:
    """The stdout of a command that got an interrupt when it imported `at`."""
    path = f"{folder}:{shell.environment['PYTHONPATH']}"
    done = subprocess.run(
        shell.command(*arguments),
        cwd=shell.folder,
        env={**shell.environment, "PYTHONPATH": path, "INTERRUPT_AT": at},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    return done.stdout
