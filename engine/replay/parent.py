"""Starts a replay's process and serves what it asks of the past."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
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
from .guard import Violation
from .watch import PLACE, Watch
from .wire import Broken, Garbled, Pipe, Reply, Request

#: Seconds that a child gets beyond its handler's bound, for starting and importing the app.
_GRACE = 60.0
#: Seconds within which a process whose pipe has closed is gone, unless its code has closed the pipe.
_ENDING = 5.0


class Refused(Exception):
    """A replay cannot be done as asked; says why and what would do."""


class Replayer:
    """A process that waits for one replay. Close it, or use it as a context manager."""

    def __init__(
        self, pid: int, pipe: Pipe, from_child: int, calls: socket.socket, program: subprocess.Popen[bytes] | None
    ) -> None:
        self.pipe = pipe
        self.from_child = from_child
        self.calls = calls
        self._pid = pid
        self._program = program
        self._status: int | None = None

    @classmethod
    def fork(cls) -> Replayer:
        """A copy of this process, which must not have opened anything yet nor run threads. No program is started."""
        requests, to_child, from_child, answers = _pipes()
        calls, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(to_child)
            os.close(from_child)
            calls.close()
            child.serve(requests, answers, theirs)
        os.close(requests)
        os.close(answers)
        theirs.close()
        return cls(pid, Pipe(from_child, to_child), from_child, calls, None)

    @classmethod
    def start(cls) -> Replayer:
        """A new interpreter: for a process that has threads and open files already."""
        requests, to_child, from_child, answers = _pipes()
        calls, theirs = socket.socketpair()
        command = [sys.executable, "-m", "rewindq.engine.replay.child", str(answers), str(theirs.fileno())]
        program = subprocess.Popen(command, stdin=requests, pass_fds=(answers, theirs.fileno()))
        os.close(requests)
        os.close(answers)
        theirs.close()
        return cls(program.pid, Pipe(from_child, to_child), from_child, calls, program)

    def wait(self) -> int:
        """The process's exit status, minus the signal that ended it."""
        if self._status is None:
            if self._program is not None:
                self._status = self._program.wait()
            else:
                self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def ends(self, seconds: float) -> bool:
        """Whether the process ends within this time."""
        if self._status is None:
            process = os.pidfd_open(self._pid)
            try:
                return bool(select.select([process], [], [], seconds)[0])
            finally:
                os.close(process)
        return True

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()
        self.pipe.close()
        self.calls.close()

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
    violations: list[Violation] = []
    watch = Watch(serving.calls, request.folder)
    deadline = time.monotonic() + request.limit + _GRACE
    pipe = serving.pipe
    try:
        pipe.send("replay", request)
        while True:
            ready = _readable((serving.from_child, watch.descriptor), deadline)
            if not ready:
                return _died(violations, f"no end within {request.limit + _GRACE:g} s")
            if watch.descriptor in ready:
                found = watch.look()
                violations += () if found is None else (found,)
            if serving.from_child not in ready:
                continue
            kind, value = pipe.receive()
            if kind == "reply":
                return _named(msgspec.convert(value, Reply), violations)
            if kind == "violation":
                violations.append(Violation(*value))
                continue
            _answer(pipe, kind, value, view, blobs)
    except Broken as error:
        return _broken(serving, violations, error)
    finally:
        watch.close()


def _readable(descriptors: tuple[int | None, ...], deadline: float) -> list[int]:
    left = deadline - time.monotonic()
    known = [one for one in descriptors if one is not None]
    return select.select(known, [], [], left)[0] if left > 0 else []


def _broken(serving: Replayer, violations: list[Violation], error: Broken) -> Reply:
    """What it means that the pipe came to its end before the reply: the handler's code ended or closed something."""
    if isinstance(error, Garbled):
        violations.append(Violation("pipe", f"{error}: the code wrote into the replay's own pipe", PLACE))
        return _died(violations, "what the replay's process says cannot be read")
    if not serving.ends(_ENDING) or serving.wait() == child.PIPE_LOST:
        violations.append(Violation("pipe", "the code closed the replay's own pipe", PLACE))
        return _died(violations, "the replay's pipe was closed before the handler ended")
    status = serving.wait()
    if status < 0:
        return _died(violations, f"the replay's process was ended by {_signal_name(-status)} before the handler did")
    reason = f"the replay's process ended with status {status} before the handler did"
    if not violations:
        violations.append(Violation("exit", f"with status {status}, before the handler came to its end", PLACE))
    return _died(violations, reason)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _died(violations: list[Violation], reason: str) -> Reply:
    return _named(Reply("failed", reason=reason), violations, reason)


def _named(reply: Reply, violations: list[Violation], reason: str | None = None) -> Reply:
    """The reply with what was refused, which counts even where the handler swallowed it."""
    if not violations:
        return reply
    around = f"the code went around ctx: {violations[0]}"
    return msgspec.structs.replace(
        reply,
        outcome="blocked",
        reason=around if reason is None else f"{reason}; {around}",
        violations=tuple((one.event, one.argument, one.place) for one in violations),
    )


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
