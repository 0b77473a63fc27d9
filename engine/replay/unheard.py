"""Closes functions of the standard library that reach beyond the process and raise no audit event."""

from __future__ import annotations

import functools
import importlib
import os
import sqlite3
from collections.abc import Callable
from typing import Any

from .guard import OWN_PIPE, Guard

#: What a call is about when it must be refused, else None.
_Judge = Callable[[Guard, tuple[Any, ...]], str | None]


def close_unheard(guard: Guard) -> None:
    """From now on these functions ask the guard, as long as it is armed. Done once, before user code is imported."""
    for modules, names, judge in _CLOSED:
        for name in names:
            _close(guard, modules, name, judge)
    _close_attaching(guard)


def _close(guard: Guard, modules: tuple[str, ...], name: str, judge: _Judge) -> None:
    found = [importlib.import_module(module) for module in modules]
    original = getattr(found[0], name, None)
    if original is None:
        return  # not on this version of Python

    @functools.wraps(original)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if guard.armed:
            argument = judge(guard, (*args, *kwargs.values()))
            if argument is not None:
                guard.refuse(f"{modules[0]}.{name}", argument)
        return original(*args, **kwargs)

    for module in found:
        setattr(module, name, asking)


def _close_attaching(guard: Guard) -> None:
    """A database in memory may not be joined with one in a file; `VACUUM INTO` does it by attaching."""
    original = sqlite3.connect

    def allowed(action: int, name: str | None, *_: Any) -> int:
        if guard.armed and action == sqlite3.SQLITE_ATTACH and name not in ("", ":memory:"):
            guard.refuse("sqlite3.attach", name or "a file given as a parameter")
        return sqlite3.SQLITE_OK

    @functools.wraps(original)
    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = original(*args, **kwargs)
        database.set_authorizer(allowed)
        return database

    for module in (sqlite3, sqlite3.dbapi2):
        module.connect = connect  # type: ignore[attr-defined]


def _a_path(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return guard.outside(args[0]) if args else None


def _whatever(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return ", ".join(map(str, args)) or "without arguments"


def _own_pipe(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return OWN_PIPE if any(isinstance(arg, int) and arg in guard.pipes for arg in args[:2]) else None


def _own_pipes_between(guard: Guard, args: tuple[Any, ...]) -> str | None:
    low, high = (*args, 0, 0)[:2]
    return OWN_PIPE if any(low <= pipe < high for pipe in guard.pipes) else None


def _shared_memory(guard: Guard, args: tuple[Any, ...]) -> str | None:
    name, flags = (*args, None, None)[:2]
    return None if isinstance(flags, int) and not flags & (os.O_RDWR | os.O_CREAT | os.O_TRUNC) else str(name)


def _program(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return str(args[0] if args else "")


_CLOSED: tuple[tuple[tuple[str, ...], tuple[str, ...], _Judge], ...] = (
    (("os", "posix"), ("mkfifo", "mknod"), _a_path),
    (("os", "posix"), ("_exit", "abort"), _whatever),
    (
        ("os", "posix"),
        ("close", "dup", "dup2", "write", "writev", "pwrite", "read", "readv", "sendfile", "splice", "set_blocking"),
        _own_pipe,
    ),
    (("os", "posix"), ("closerange",), _own_pipes_between),
    (("signal", "_signal"), ("pidfd_send_signal",), _whatever),
    # `multiprocessing` starts programs and shares memory below the level that audit events see.
    (("_posixsubprocess",), ("fork_exec",), _program),
    (("_posixshmem",), ("shm_open",), _shared_memory),
    (("_posixshmem",), ("shm_unlink",), _whatever),
)
