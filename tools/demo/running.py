"""The demo's processes: the services, `rewindq` commands, and workers of which one is killed on the way."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .calls import ENVIRONMENT
from .services import GATEWAY, SOCKET, ledger_path

#: Longest that anything in the demo is waited for, in seconds.
WAIT_S = 120.0
#: Exit codes with which a command has done its work: the last says that what it compared differs.
DONE = (0, 3)


class CommandFailed(Exception):
    """A command of the demo did not do its work. Names it, its exit code and what it said."""


class Ran(NamedTuple):
    """A command as it can be typed, with what it answered."""

    typed: str
    code: int
    answer: dict[str, Any]


def typed(arguments: Sequence[str]) -> str:
    """A command as a person types it."""
    return shlex.join(["rewindq", *arguments])


def _program(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "rewindq.tools.cli", *arguments, "--json"]


def rewindq(folder: Path, *arguments: str) -> Ran:
    """Runs a command in a folder. Raises CommandFailed."""
    done = subprocess.run(
        _program(arguments), cwd=folder, env=_environment(), capture_output=True, timeout=WAIT_S, check=False
    )
    return _read(arguments, done.returncode, done.stdout, done.stderr)


def _read(arguments: Sequence[str], code: int, out: bytes, errors: bytes) -> Ran:
    try:
        answer = json.loads(out)
    except ValueError:
        answer = None
    if code not in DONE or not isinstance(answer, dict):
        said = (errors or out).decode("utf-8", "replace").strip()[-2000:]
        raise CommandFailed(f"`{typed(arguments)}` ended with exit code {code}: {said or 'it said nothing'}")
    return Ran(typed(arguments), code, answer)


def _environment() -> dict[str, str]:
    """This process's environment with the services' socket, and without settings that point elsewhere.

    The socket is named as seen from the demo's folder, in which everything runs: a socket's address must be short.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("REWINDQ_")}
    return {**own, ENVIRONMENT: SOCKET}


@contextmanager
def services(folder: Path, faults: float, latency: float) -> Iterator[subprocess.Popen[bytes]]:
    """The gateway and the warehouse, while the block runs; they end with this process, however it ends."""
    command = [
        sys.executable, "-m", "rewindq.tools.demo.services", "--attached",
        "--dir", ".", "--faults", str(faults), "--latency", str(latency),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        if not process.stdout.readline():
            raise CommandFailed(f"the services ended with exit code {process.wait(WAIT_S)} before they listened")
        yield process
    finally:
        process.stdin.close()
        process.wait(WAIT_S)
        process.stdout.close()


class WorkersRan(NamedTuple):
    """What `rewindq worker` did; `killed` is the process that got SIGKILL, where one did."""

    ran: Ran
    killed: int | None
    charged_then: int
    seconds: float


def run_workers(folder: Path, arguments: Sequence[str], kill_at: int | None) -> WorkersRan:
    """Runs `rewindq worker` to its end; kills its oldest process when the gateway has charged `kill_at` times."""
    began = time.monotonic()
    killed, charged = None, 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(_program(arguments), cwd=folder, env=_environment(), stdout=out, stderr=errors)
        try:
            if kill_at is not None:
                charged = _wait_for_charges(folder, kill_at, process)
                killed = _kill_oldest_child(process)
            code = process.wait(WAIT_S)
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"`{typed(arguments)}` did not end within {WAIT_S:g} s") from error
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(WAIT_S)
        out.seek(0)
        errors.seek(0)
        ran = _read(arguments, code, out.read(), errors.read())
    return WorkersRan(ran, killed, charged, time.monotonic() - began)


def _wait_for_charges(folder: Path, count: int, process: subprocess.Popen[bytes]) -> int:
    ledger = ledger_path(folder, GATEWAY)
    charged = 0

    def reached() -> bool:
        nonlocal charged
        charged = ledger.read_bytes().count(b"\n")
        return charged >= count or process.poll() is not None

    _wait(reached, f"{count} charges")
    return charged


def _kill_oldest_child(process: subprocess.Popen[bytes]) -> int | None:
    children = sorted(_children(process.pid))
    if process.poll() is not None or not children:
        return None
    # The oldest has had its partitions for longest, so it is in the middle of orders.
    os.kill(children[0], signal.SIGKILL)
    return children[0]


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise CommandFailed(f"waited {WAIT_S:g} s for {what}")
        time.sleep(0.01)
