"""Models as the trace keeps them: in JSON's types, with the fields that are marked secret masked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..core.secrets import MASK
from ..core.values import ValueRefused


def is_marked(field: FieldInfo) -> bool:
    """Whether a field is marked with `json_schema_extra={"secret": True}`; secret types mask themselves."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("secret"))


#: Values of these types hold nothing that could be marked.
_SCALARS = frozenset({str, int, float, bool, bytes, NoneType, Decimal, datetime, date, time, timedelta, UUID})


def dumped(model: BaseModel) -> Any:
    """A model's JSON form without its secrets, wherever they are nested."""
    shown = json_form(model)
    return shown if _is_flat(type(model)) else _masked(model, shown)


@lru_cache(maxsize=1024)
def _is_flat(model: type[BaseModel]) -> bool:
    """Whether all that a model can hold are scalars without a mark, as most do: then there is nothing to mask."""
    if model.model_config.get("extra") == "allow":
        return False
    return all(not is_marked(field) and _is_scalar(field.annotation) for field in model.model_fields.values())


def _is_scalar(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_scalar, get_args(annotation)))
    return annotation in _SCALARS


def json_form(model: BaseModel) -> Any:
    """A model's JSON form, secrets masked as pydantic does. Raises ValueRefused, with the path, where it has none."""
    try:
        return model.model_dump(mode="json")
    except ValueError as error:  # of pydantic's, or of bytes that are no UTF-8
        path = _path_of_bytes(model, "")
        if path is None:
            raise ValueRefused("", f"{type(model).__name__} has no JSON form: {error}") from error
        reason = "these bytes are no UTF-8, which is how its model writes bytes into JSON"
        advice = "give it ConfigDict(ser_json_bytes='base64', val_json_bytes='base64')"
        raise ValueRefused(path, f"{reason}: {advice}") from error


def _path_of_bytes(value: Any, path: str) -> str | None:
    """Where the first bytes stand that are no UTF-8."""
    if isinstance(value, bytes):
        return path if value.decode("utf-8", "replace").encode() != value else None
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseModel):
        parts = ((name, getattr(value, name, None)) for name in type(value).model_fields)
    elif isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    return next((found for at, one in parts if (found := _path_of_bytes(one, f"{path}/{at}")) is not None), None)


def _masked(value: Any, shown: Any) -> Any:
    if isinstance(value, BaseModel) and isinstance(shown, dict):
        fields = type(value).model_fields
        return {
            name: MASK
            if name in fields and is_marked(fields[name]) and item is not None
            else _masked(getattr(value, name, None), item)
            for name, item in shown.items()
        }
    if isinstance(value, list | tuple) and isinstance(shown, list) and len(value) == len(shown):
        return [_masked(one, item) for one, item in zip(value, shown, strict=True)]
    if isinstance(value, dict) and isinstance(shown, dict) and len(value) == len(shown):
        return {name: _masked(one, item) for one, (name, item) in zip(value.values(), shown.items(), strict=True)}
    return shown
