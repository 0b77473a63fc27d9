"""Whether a payload's model reads its own JSON as the value that was given: what would change is refused by its path.

JSON has fewer types than Python. A value of a union that looks like another member, a decimal in a field of `Any`, a
subclass's own fields: pydantic reads them back as something else, without a word. A submitter can still mend that.
"""

from __future__ import annotations

import math
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ValidationError

from ..core.values import ValueRefused

_ADVICE = "make the field's types distinct (a discriminated union, a type of its own), or give text"


def check_read_back(model: BaseModel, data: bytes) -> None:
    """Raises ValueRefused where `data`, the model's JSON, is read as another value, or not at all."""
    kind = type(model)
    try:
        read = kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"/{part}" for part in first["loc"])
        raise ValueRefused(path, f"{kind.__name__} cannot read its own JSON: {first['msg']}") from error
    found = _difference(model, read, "")
    if found is not None:
        path, given, back = found
        # Without the values, which may be secret.
        was, becomes = type(given).__qualname__, type(back).__qualname__
        becomes = "another one" if was == becomes else becomes
        raise ValueRefused(path, f"this {was} would be read back as {becomes}: {_ADVICE}")


def _difference(given: Any, back: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first place where what is read back is not what was given. A tuple may be a list."""
    if isinstance(given, list | tuple) and isinstance(back, list | tuple):
        if len(given) != len(back):
            return path, given, back
        return _first((f"{path}/{at}", one, other) for at, (one, other) in enumerate(zip(given, back, strict=True)))
    if type(given) is not type(back):
        return path, given, back
    if isinstance(given, BaseModel):
        fields = type(given).model_fields
        names = [name for name, field in fields.items() if not field.exclude] + list(given.model_extra or ())
        return _first((f"{path}/{name}", getattr(given, name, None), getattr(back, name, None)) for name in names)
    if isinstance(given, dict):
        if given.keys() != back.keys():
            return path, given, back
        return _first((f"{path}/{name}", given[name], back[name]) for name in given)
    return None if _same(given, back) else (path, given, back)


def _first(places: Any) -> tuple[str, Any, Any] | None:
    for path, given, back in places:
        found = _difference(given, back, path)
        if found is not None:
            return found
    return None


def _same(given: Any, back: Any) -> bool:
    if isinstance(given, float):
        return math.isnan(given) or (given == back and math.copysign(1, given) == math.copysign(1, back))
    if isinstance(given, datetime | time):
        # Part by part: `==` calls times of a doubled hour unequal to any of another zone. Without an offset, `fold` is
        # all that tells the two passes of such an hour apart.
        marks_kept = given.utcoffset() is not None or given.fold == back.fold
        walls = [one.replace(tzinfo=None, fold=0) for one in (given, back)]
        return walls[0] == walls[1] and given.utcoffset() == back.utcoffset() and marks_kept
    return bool(given == back) and (not isinstance(given, Decimal) or str(given) == str(back))
