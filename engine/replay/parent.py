"""Starts a replay's process and serves what it asks of the past."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec

from ..core import values
from ..ports.blobs import BlobMissing, Blobs
from ..ports.store import Family, StoreError, View
from . import child
from .wire import Broken, Pipe, Reply, Request

#: Seconds that a child gets beyond its handler's bound, for starting and importing the app.
_GRACE = 60.0


class Refused(Exception):
    """A replay cannot be done as asked; says why and what would do."""


class Replayer:
    """A process that waits for one replay. Close it, or use it as a context manager."""

    def __init__(self, pid: int, pipe: Pipe, from_child: int, program: subprocess.Popen[bytes] | None) -> None:
        self.pipe = pipe
        self.from_child = from_child
        self._pid = pid
        self._program = program
        self._status: int | None = None

    @classmethod
    def fork(cls) -> Replayer:
        """A copy of this process, which must not have opened anything yet nor run threads. No program is started."""
        requests, to_child, from_child, answers = _pipes()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(to_child)
            os.close(from_child)
            child.serve(requests, answers)
        os.close(requests)
        os.close(answers)
        return cls(pid, Pipe(from_child, to_child), from_child, None)

    @classmethod
    def start(cls) -> Replayer:
        """A new interpreter: for a process that has threads and open files already."""
        requests, to_child, from_child, answers = _pipes()
        command = [sys.executable, "-m", "rewindq.engine.replay.child", str(answers)]
        program = subprocess.Popen(command, stdin=requests, pass_fds=(answers,))
        os.close(requests)
        os.close(answers)
        return cls(program.pid, Pipe(from_child, to_child), from_child, program)

    def wait(self) -> int:
        """The process's exit status, minus the signal that ended it."""
        if self._status is None:
            if self._program is not None:
                self._status = self._program.wait()
            else:
                self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()
        self.pipe.close()

    def __enter__(self) -> Replayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pipes() -> tuple[int, int, int, int]:
    requests, to_child = os.pipe()
    from_child, answers = os.pipe()
    return requests, to_child, from_child, answers


def replay(request: Request, view: View, blobs: Blobs | None, replayer: Replayer | None = None) -> Reply:
    """Runs a replay in a process of its own, which reads the past through this one and nothing else."""
    with replayer if replayer is not None else Replayer.start() as serving:
        return _serve(serving, request, view, blobs)


def _serve(serving: Replayer, request: Request, view: View, blobs: Blobs | None) -> Reply:
    violations: list[tuple[str, str, str]] = []
    deadline = time.monotonic() + request.limit + _GRACE
    pipe = serving.pipe
    try:
        pipe.send("replay", request)
        while True:
            if not _readable(serving.from_child, deadline):
                return _died(violations, f"no end within {request.limit + _GRACE:g} s")
            kind, value = pipe.receive()
            if kind == "reply":
                return msgspec.convert(value, Reply)
            if kind == "violation":
                violations.append((value[0], value[1], value[2]))
                continue
            _answer(pipe, kind, value, view, blobs)
    except Broken:
        status = serving.wait()
        return _died(violations, f"the replay's process ended with status {status} before the handler did")


def _readable(fd: int, deadline: float) -> bool:
    left = deadline - time.monotonic()
    return left > 0 and bool(select.select([fd], [], [], left)[0])


def _died(violations: list[tuple[str, str, str]], reason: str) -> Reply:
    outcome = "blocked" if violations else "failed"
    return Reply(outcome, reason=reason, violations=tuple(violations))


def _answer(pipe: Pipe, kind: str, value: Any, view: View, blobs: Blobs | None) -> None:
    try:
        found = _look_up(kind, value, view, blobs)
    except BlobMissing as error:
        pipe.send("missing", str(error))
    except StoreError as error:
        pipe.send("refused", str(error))
    else:
        pipe.send("found", found)


def _look_up(kind: str, value: Any, view: View, blobs: Blobs | None) -> Any:
    if kind == "blob":
        if blobs is None:
            raise BlobMissing(f"{value} is in a blob store, and none is set (--blobs)")
        return blobs.get(value)
    family, key = Family(value[0]), value[1]
    if kind == "get":
        return view.get(family, key)
    if kind == "at":
        return view.at(family, key, value[2])
    return list(view.history(family, key, first=value[2], last=value[3]))


def changed_payload(payload: bytes, changes: Mapping[str, str]) -> bytes:
    """A payload with paths (`a.b`, list places by number) set to JSON values; what is no JSON is taken as text.

    Raises Refused naming a path that does not fit the payload.
    """
    data = values.decode(payload)
    for path, text in changes.items():
        _set(data, path.split("."), _value(text), path)
    return values.encode(data)


def _value(text: str) -> Any:
    try:
        return values.parse_json(text)
    except values.JsonRefused:
        return text


def _set(data: Any, path: list[str], value: Any, whole: str) -> None:
    *parents, last = path
    for name in parents:
        data = _item(data, name, whole)
    if isinstance(data, dict):
        data[last] = value
    elif isinstance(data, list) and last.isdecimal() and int(last) < len(data):
        data[int(last)] = value
    else:
        raise Refused(f"--set {whole}: {last!r} is no place in {json.dumps(values.plain(data))[:80]}")


def _item(data: Any, name: str, whole: str) -> Any:
    if isinstance(data, dict) and name in data:
        return data[name]
    if isinstance(data, list) and name.isdecimal() and int(name) < len(data):
        return data[int(name)]
    raise Refused(f"--set {whole}: the payload has no {name!r} there")
