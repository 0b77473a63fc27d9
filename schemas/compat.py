"""Whether the current release reads every released one, by Avro's rules of schema resolution.

`python -m rewindq.schemas.compat` exits 1 and names each schema and field that it could not read; CI runs it.
Stricter than Avro in one thing: no field, enum symbol or union member that was ever released is removed or renamed,
even where a default would stand in, since stored events would lose their meaning.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from . import catalog

#: What a reader's type accepts besides itself.
_PROMOTED = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
Names = dict[str, dict[str, Any]]


def problems(writer: dict[str, Any], reader: dict[str, Any]) -> list[str]:
    """Why records of `writer` could not be read with `reader`, each naming its schema and field; empty if they can."""
    return list(dict.fromkeys(_Check(_names(writer), _names(reader)).compare(writer, reader, "")))


def check_releases() -> list[str]:
    """The problems of the current release with every released one."""
    current = catalog.complete_schema(catalog.current_release())
    return [
        f"release {release}: {problem}"
        for release in sorted(catalog.releases())
        for problem in problems(catalog.complete_schema(release), current)
    ]


def _names(schema: Any, found: Names | None = None) -> Names:
    """Named schemas by their short name: all stand in one namespace."""
    found = {} if found is None else found
    if isinstance(schema, list):
        for member in schema:
            _names(member, found)
    elif isinstance(schema, dict):
        if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
            found[_short(schema["name"])] = schema
            for field in schema.get("fields", ()):
                _names(field["type"], found)
        for part in ("type", "items", "values"):
            if isinstance(schema.get(part), dict | list):
                _names(schema[part], found)
    return found


def _short(name: str) -> str:
    return name.rpartition(".")[2]


class _Check:
    """One comparison; each pair of named schemas is looked at once."""

    def __init__(self, writer_names: Names, reader_names: Names) -> None:
        self._writer_names = writer_names
        self._reader_names = reader_names
        self._seen: set[tuple[str, str]] = set()

    def compare(self, writer: Any, reader: Any, at: str) -> Iterator[str]:
        """Problems of the values at one place."""
        if isinstance(writer, list) or isinstance(reader, list):
            yield from self._union(_members(writer), _members(reader), at, isinstance(writer, list))
            return
        one, other = _resolved(writer, self._writer_names), _resolved(reader, self._reader_names)
        kind, wanted = one["type"], other["type"]
        if kind != wanted:
            if kind not in _PROMOTED.get(wanted, ()):
                yield f"{at}: {_label(one)} cannot be read as {_label(other)}"
        elif kind == "record":
            yield from self._record(one, other, at)
        elif kind == "enum":
            yield from self._enum(one, other, at)
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            yield from self.compare(one[part], other[part], at)
        elif kind == "fixed" and one["size"] != other["size"]:
            yield f"{at}: {_label(one)} has another size"

    def _union(self, writer: list[Any], reader: list[Any], at: str, was_union: bool) -> Iterator[str]:
        for member in writer:
            fitting = self._fitting(member, reader)
            if fitting is None:
                what = "union member " if was_union else ""
                yield f"{at}: {what}{_label(_resolved(member, self._writer_names))} was removed or renamed"
            else:
                yield from self.compare(member, fitting, at)

    def _fitting(self, member: Any, reader: list[Any]) -> Any:
        """The reader's member that takes a writer's: of the same name or type, else one that it is promoted to."""
        one = _resolved(member, self._writer_names)
        kinds = [(candidate, _resolved(candidate, self._reader_names)) for candidate in reader]
        for candidate, other in kinds:
            if _label(one) == _label(other):
                return candidate
        return next((c for c, other in kinds if one["type"] in _PROMOTED.get(other["type"], ())), None)

    def _record(self, writer: dict[str, Any], reader: dict[str, Any], at: str) -> Iterator[str]:
        pair = (writer["name"], reader["name"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        if _short(writer["name"]) != _short(reader["name"]):
            yield f"{at}: {_label(writer)} was renamed to {_label(reader)}"
            return
        name = _short(reader["name"])
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            place = f"{name}.{field['name']}"
            old = written.pop(field["name"], None)
            if old is not None:
                yield from self.compare(old["type"], field["type"], place)
            elif "default" not in field:
                yield f"{place}: the field was added without a default"
        for gone in written:
            yield f"{name}.{gone}: the field was removed; keep it, with a default, and write it no more"

    def _enum(self, writer: dict[str, Any], reader: dict[str, Any], at: str) -> Iterator[str]:
        for symbol in writer["symbols"]:
            if symbol not in reader["symbols"]:
                yield f"{at}: symbol {symbol!r} of {_label(reader)} was removed or renamed"


def _members(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _resolved(schema: Any, names: Names) -> dict[str, Any]:
    """A schema as a dict: names looked up, `{"type": {...}}` unwrapped."""
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    if isinstance(schema, str):
        return names.get(_short(schema), {"type": schema})
    resolved: dict[str, Any] = schema
    return resolved


def _label(schema: dict[str, Any]) -> str:
    return _short(schema["name"]) if "name" in schema else str(schema["type"])


def main() -> int:
    """Prints the problems; the exit status is 1 when there are any."""
    found = check_releases()
    if found:
        sys.stderr.write("The current release cannot read what was released before:\n")
        sys.stderr.writelines(f"  {problem}\n" for problem in found)
        sys.stderr.write(
            "Released schemas never change: add a new version of the schema, and a release that names it.\n"
        )
        return 1
    sys.stdout.write(json.dumps({"releases": sorted(catalog.releases()), "compatible": True}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
