"""Models as the trace keeps them: in JSON's types, with the fields that are marked secret masked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..core.secrets import MASK
from .json_form import SCALARS, holds_only, json_form


def is_marked(field: FieldInfo) -> bool:
    """Whether a field is marked with `json_schema_extra={"secret": True}`; secret types mask themselves."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("secret"))


def dumped(model: BaseModel) -> Any:
    """A model's JSON form without its secrets, wherever they are nested. Raises ValueRefused."""
    shown = json_form(model)
    return shown if _is_flat(type(model)) else _masked(model, shown)


@lru_cache(maxsize=1024)
def _is_flat(model: type[BaseModel]) -> bool:
    """Whether all that a model can hold are scalars without a mark, as most do: then there is nothing to mask."""
    return holds_only(model, SCALARS) and not any(map(is_marked, model.model_fields.values()))


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
