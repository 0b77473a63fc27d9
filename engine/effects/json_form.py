"""A model in JSON's types: what pydantic would write as something else in silence is refused."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

from ..core.values import ValueRefused

#: Types whose values hold no others.
SCALARS = frozenset({str, int, float, bool, bytes, NoneType, Decimal, datetime, date, time, timedelta, UUID})
#: A NaN in a field of these types stays one, and is refused where the value is encoded.
_SEEN_LATER = SCALARS - {Decimal}


def json_form(model: BaseModel) -> Any:
    """A model in JSON's types, as its own serializers write it.

    Raises ValueRefused with the path, also where pydantic would write something else in silence: null for a NaN or an
    infinity in a field of any type, the text NaN for a decimal.
    """
    try:
        shown = model.model_dump(mode="json")
    except ValueError as error:  # bytes that are no text, a type without a JSON form
        path = _not_text(model, "")
        if path is None:
            raise ValueRefused("", f"{type(model).__name__} has no JSON form: {error}") from error
        reason = "these bytes are no UTF-8, which is how its model writes bytes into JSON"
        advice = "give it ConfigDict(ser_json_bytes='base64', val_json_bytes='base64')"
        raise ValueRefused(path, f"{reason}: {advice}") from error
    if not holds_only(type(model), _SEEN_LATER):
        _refuse_infinite(model, shown, "")
    return shown


@lru_cache(maxsize=1024)
def holds_only(model: type[BaseModel], types: frozenset[type]) -> bool:
    """Whether all fields that a model can have are of these types, as with most: then nothing has to be looked at."""
    if model.model_config.get("extra") == "allow":
        return False
    return all(_is_of(field.annotation, types) for field in model.model_fields.values())


def _is_of(annotation: Any, types: frozenset[type]) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_of(one, types) for one in get_args(annotation))
    return annotation in types


def _refuse_infinite(value: Any, shown: Any, path: str) -> None:
    """Refuses numbers that are not finite, unless a serializer of the model's own has written them as it likes."""
    if isinstance(value, float | Decimal):
        finite = math.isfinite(value) if isinstance(value, float) else value.is_finite()
        if finite:
            return
        if shown is None or isinstance(shown, float) or shown == str(value):
            raise ValueRefused(path, f"{value!s} is not a finite number")
    elif isinstance(shown, dict | list):
        written = shown if isinstance(value, BaseModel) else dict(zip(dict(_items(value)), _parts(shown), strict=False))
        for name, item in _items(value):
            if name in written:
                _refuse_infinite(item, written[name], f"{path}/{name}")


def _items(value: Any) -> list[tuple[Any, Any]]:
    """The parts of a model, a dict or a list, with their names."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name, None)) for name in type(value).model_fields]
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _parts(shown: dict[str, Any] | list[Any]) -> list[Any]:
    return list(shown.values()) if isinstance(shown, dict) else shown


def _not_text(value: Any, path: str) -> str | None:
    """Where bytes stand that are no UTF-8."""
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return path
        return None
    found = (_not_text(item, f"{path}/{name}") for name, item in _items(value))
    return next((place for place in found if place is not None), None)
