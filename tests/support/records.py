"""Event records for tests: strategies that build every field of every body, and a rendering for people."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from rewindq.engine.core.events import BODIES, Body, Event, EventRecord, Status

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: LONG,
    str: TEXT,
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
}


def strategy_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.none() | st.one_of([strategy_of(arg) for arg in args if arg is not type(None)])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(strategy_of(args[0]), max_size=3).map(tuple)
    raise TypeError(f"no strategy for {kind}")


def fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A struct's fields and their types, in order."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in msgspec.structs.fields(kind)}


def structs(kind: type[Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances with every field built, none left at its default."""
    strategies = {name: given[name] if name in given else strategy_of(type_) for name, type_ in fields_of(kind).items()}
    return st.builds(kind, **strategies)


@cache
def bodies(name: str) -> st.SearchStrategy[Body]:
    """Bodies of one event type."""
    return structs(BODIES[name])


def records(body: st.SearchStrategy[Body] | None = None) -> st.SearchStrategy[EventRecord]:
    """Records of up to three events."""
    chosen = body if body is not None else st.sampled_from(sorted(BODIES)).flatmap(bodies)
    return structs(EventRecord, events=st.lists(structs(Event, body=chosen), max_size=3).map(tuple))


def filled(kind: type[Any], number: Callable[[], int], **given: Any) -> Any:
    """One instance with every field set to something that no other field holds."""
    values: dict[str, Any] = {}
    for name, type_ in fields_of(kind).items():
        values[name] = given[name] if name in given else _filling(name, type_, number)
    return kind(**values)


def _filling(name: str, kind: Any, number: Callable[[], int]) -> Any:
    args = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    if kind == Status:
        return "compensated"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return _filling(name, args[0], number)
    if typing.get_origin(kind) is tuple:
        return (f"{name}-1", f"{name}-é")
    if kind is bool:
        return True
    if kind is int:
        return number() * 1_000_003
    return f"{name}-é-{number()}" if kind is str else f'{{"{name}":{number()}}}'.encode()


def rendered(record: EventRecord) -> dict[str, Any]:
    """A record as JSON values: bodies by name, bytes as hexadecimal digits."""
    plain = {name: _json(value) for name, value in msgspec.structs.asdict(record).items() if name != "events"}
    return {**plain, "events": [_rendered_event(event) for event in record.events]}


def _rendered_event(event: Event) -> dict[str, Any]:
    plain = {name: _json(value) for name, value in msgspec.structs.asdict(event).items() if name != "body"}
    body = {name: _json(value) for name, value in msgspec.structs.asdict(event.body).items()}
    return {type(event.body).__name__: body, **plain}


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return list(value) if isinstance(value, tuple) else value
