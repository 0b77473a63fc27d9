"""Recorded exceptions, raised again: the same class, message, arguments, attributes and causes, as far as kept."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


class RecordedError(Exception):
    """Stands for a recorded exception whose class is gone, or cannot be made from what was recorded.

    `name` is the class's, with its module; attributes that were recorded are this one's.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def rebuilt(kept: dict[str, Any], function: Callable[..., object]) -> tuple[BaseException, str | None]:
    """The exception of what `runtime/kept.py` keeps, and the name of its class when that is missing."""
    chain = [_one(entry, function) for entry in kept["chain"]]
    for (error, _), (because, _), entry in zip(chain, chain[1:], kept["chain"][1:], strict=False):
        if entry.get("by") == "cause":
            error.__cause__ = because
        else:
            error.__context__ = because
    return chain[0]


def _one(entry: dict[str, Any], function: Callable[..., object]) -> tuple[BaseException, str | None]:
    name = f"{entry['module']}.{entry['class']}"
    kind = _class_at(entry["module"], entry["class"]) or exception_class(entry["class"], function)
    error: BaseException | None = None
    if kind is not None and "group" in entry:
        members = [_one(member, function)[0] for member in entry["group"]]
        error = _group(kind, entry["message"].rpartition(" (")[0], members)
    elif kind is not None:
        error = made(kind, *entry.get("args", [entry["message"]]))
        if error is not None and "args" not in entry:
            error.add_note("rebuilt from a trace: its arguments could not be recorded, they are its message")
    if error is None:
        error = RecordedError(name, entry["message"])
    for attribute, value in entry.get("attributes", {}).items():
        _give(error, attribute, value)
    return error, name if isinstance(error, RecordedError) else None


def _give(error: BaseException, attribute: str, value: Any) -> None:
    try:
        setattr(error, attribute, value)
    except (AttributeError, TypeError):
        error.add_note(f"rebuilt from a trace: {attribute} was {value!r}")


def _group(kind: type[BaseException], message: str, members: list[BaseException]) -> BaseException | None:
    try:
        return kind(message, members)
    except Exception:  # noqa: BLE001 - the app's own constructor
        return None


def made(kind: type[BaseException], *args: Any) -> BaseException | None:
    """An exception with these arguments, without its own `__init__`, which may want others; None if it cannot be."""
    try:
        error = kind.__new__(kind, *args)
        error.args = args
    except Exception:  # noqa: BLE001 - the app's own constructor
        return None
    return error


def exception_class(name: str, function: Callable[..., object]) -> type[BaseException] | None:
    """The exception class of a recorded qualified name: a builtin, one of the function's module, or any other."""
    own = getattr(builtins, name, None)
    if isinstance(own, type) and issubclass(own, BaseException):
        return own
    home = getattr(function, "__module__", None)
    found = [kind for kind in _subclasses(BaseException) if kind.__qualname__ == name]
    found.sort(key=lambda kind: (kind.__module__ != home, kind.__module__ not in sys.modules))
    return found[0] if found else None


def _class_at(module: str, qualified: str) -> type[BaseException] | None:
    """The class where it was, its module imported when it is not yet."""
    for kind in _subclasses(BaseException):
        if (kind.__module__, kind.__qualname__) == (module, qualified):
            return kind
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module that is gone, or whatever importing it raises
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for sub in type.__subclasses__(kind):
        yield sub
        yield from _subclasses(sub)
