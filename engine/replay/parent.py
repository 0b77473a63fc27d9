"""Starts a replay's process and serves what it asks of the past."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core import values
from ..ports.blobs import BlobMissing, Blobs
from ..ports.store import Family, StoreError, View
from .wire import Broken, Pipe, Reply, Request

#: Seconds that a child gets beyond its handler's bound, for starting and importing the app.
_GRACE = 60.0


class Refused(Exception):
    """A replay cannot be done as asked; says why and what would do."""


def replay(request: Request, view: View, blobs: Blobs | None) -> Reply:
    """Runs a replay in a process of its own, which reads the past through this one and nothing else."""
    requests, to_child = os.pipe()
    from_child, answers = os.pipe()
    command = [sys.executable, "-m", "rewindq.engine.replay.child", str(answers)]
    process = subprocess.Popen(command, stdin=requests, pass_fds=(answers,))
    os.close(requests)
    os.close(answers)
    pipe = Pipe(from_child, to_child)
    try:
        return _serve(pipe, from_child, request, view, blobs, process)
    finally:
        process.kill()
        process.wait()
        pipe.close()


def _serve(
    pipe: Pipe, fd: int, request: Request, view: View, blobs: Blobs | None, process: subprocess.Popen[bytes]
) -> Reply:
    violations: list[tuple[str, str, str]] = []
    deadline = time.monotonic() + request.limit + _GRACE
    try:
        pipe.send("replay", request)
        while True:
            if not _readable(fd, deadline):
                return _died(violations, f"no end within {request.limit + _GRACE:g} s")
            kind, value = pipe.receive()
            if kind == "reply":
                return msgspec.convert(value, Reply)
            if kind == "violation":
                violations.append((value[0], value[1], value[2]))
                continue
            _answer(pipe, kind, value, view, blobs)
    except Broken:
        return _died(violations, f"the replay's process ended with status {process.wait()} before the handler did")


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
