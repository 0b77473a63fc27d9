"""Whether a path that a fork changes is one that the payload's model reads at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel
from pydantic.fields import FieldInfo

from ..runtime.app import annotation_parts


def unread(model: type[BaseModel], path: str) -> str | None:
    """Why a model ignores a path (`a.b`, list places by number), naming its fields; None where it may read it."""
    models = [model]
    for name in path.split("."):
        if any(map(_reads_anything, models)):
            return None
        found = [field for one in models for known, field in _fields(one) if known == name]
        if not found:
            if name.isdecimal() and models != [model]:
                continue  # a place in a list of models
            known = ", ".join(dict.fromkeys(known for one in models for known, _ in _fields(one))) or "none"
            return f"{' or '.join(one.__name__ for one in models)} has no field {name!r}; its fields are: {known}"
        kinds = [kind for field in found for kind in _kinds(field)]
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not models or len(models) < len(kinds):
            return None  # beyond it is no model's: a plain value, a dict
    return None


def _reads_anything(model: type[BaseModel]) -> bool:
    before = model.__pydantic_decorators__.model_validators.values()
    return (
        model.model_config.get("extra") == "allow"
        or issubclass(model, RootModel)
        or any(validator.info.mode != "after" for validator in before)
    )


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo | None]]:
    """What a payload may call each field; without the field where the name is only where its value is looked for."""
    config = model.model_config
    by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if alias is None or by_name:
            yield name, field
        for one in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            if isinstance(one, AliasPath):
                yield str(one.path[0]), None
            elif one is not None:
                yield one, field


def _kinds(field: FieldInfo | None) -> list[Any]:
    if field is None:
        return [Any]
    return [kind for kind in annotation_parts(field.annotation) if kind is not type(None)]
