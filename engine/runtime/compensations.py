"""Names of compensations: they are looked up in another process, maybe after a crash, so a lambda will not do."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from .app import App


class CompensationRefused(ValueError):
    """A function cannot be found again as a compensation, or cannot take the effect's arguments. Says what to do."""


def reference(app: App, given: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A compensation's name in the log: that of `@app.compensation`, or `module:qualname`.

    Raises CompensationRefused.
    """
    if isinstance(given, str):
        if given not in app.compensations:
            known = ", ".join(sorted(app.compensations)) or "none"
            raise CompensationRefused(f"app {app.name!r} has no compensation {given!r}; it has: {known}")
        name, function = given, app.compensations[given]
    else:
        registered = next((name for name, one in app.compensations.items() if one == given), None)
        name, function = registered or _importable(given), given
    _check_arguments(name, function, args, kwargs)
    return name


def _importable(given: Callable[..., Any]) -> str:
    module, qualname = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if module is not None and qualname is not None and module != "__main__" and module in sys.modules:
        found = _walk(sys.modules[module], qualname)
        if found is given:
            return f"{module}:{qualname}"
    raise CompensationRefused(
        f"{given!r} cannot be found by name in another process: give a function of a module, "
        'or register it with @app.compensation("name")'
    )


def find(app: App, name: str) -> Callable[..., Any]:
    """The compensation of a name in the log. Raises CompensationRefused."""
    module, mark, qualname = name.partition(":")
    if not mark:
        if name not in app.compensations:
            raise CompensationRefused(f"compensation {name!r} is not registered in app {app.name!r} any more")
        return app.compensations[name]
    try:
        found = _walk(importlib.import_module(module), qualname)
    except ImportError as error:
        raise CompensationRefused(f"compensation {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise CompensationRefused(f"compensation {name!r} is not there any more: {module} has no such function")
    return found  # type: ignore[no-any-return]


def _walk(place: Any, qualname: str) -> Any:
    for part in qualname.split("."):
        place = getattr(place, part, None)
    return place


def _check_arguments(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        _bound(function, (None, *args), kwargs)
    except (TypeError, ValueError) as error:
        raise CompensationRefused(
            f"compensation {name!r} must take the effect's result and then the effect's arguments: {error}"
        ) from error


def _bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    shape = inspect.signature(function)
    injected = {name: None for name in ("idempotency_key", "fencing_token") if name in shape.parameters}
    bound = shape.bind(*args, **{**kwargs, **injected})
    for name in injected:
        bound.arguments.pop(name, None)
    return bound


def fitted(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Recorded arguments as the function takes them: models where its annotations name models.

    Raises CompensationRefused, ValidationError.
    """
    try:
        bound = _bound(function, args, kwargs)
        hints = typing.get_type_hints(getattr(function, "__func__", function))
    except (TypeError, ValueError, NameError) as error:
        raise CompensationRefused(f"{function!r} cannot take the recorded arguments: {error}") from error
    for name, value in bound.arguments.items():
        model = hints.get(name)
        if isinstance(value, dict) and isinstance(model, type) and issubclass(model, BaseModel):
            bound.arguments[name] = model.model_validate(value)
    return bound.args, bound.kwargs
