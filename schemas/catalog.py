"""Loads the Avro schemas: one file an event type and version, and the releases that combine them.

`avro/<Name>.v<N>.avsc` is never changed once released. `avro/releases.json` maps a release number to the version of
each named schema in it; a release's complete schema is that of its `EventRecord`, with the names it uses written out.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import fastavro.schema

ROOT = "EventRecord"


@cache
def releases() -> dict[int, dict[str, int]]:
    """Release number -> schema name -> version."""
    text = (files(__package__) / "avro" / "releases.json").read_text("utf-8")
    return {int(number): versions for number, versions in json.loads(text).items()}


def current_release() -> int:
    """The newest release's number."""
    return max(releases())


def schema_file(name: str, version: int) -> dict[str, Any]:
    """One schema file as parsed JSON."""
    text = (files(__package__) / "avro" / f"{name}.v{version}.avsc").read_text("utf-8")
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@cache
def complete_schema(release: int) -> dict[str, Any]:
    """The release's `EventRecord` schema, every name written out where it is first used."""
    versions = releases()[release]
    parts = {name: schema_file(name, version) for name, version in versions.items()}
    written: set[str] = set()

    def expand(node: Any) -> Any:
        if isinstance(node, str) and node in parts:
            if node in written:
                return f"rewindq.{node}"
            written.add(node)
            return expand(parts[node])
        if isinstance(node, list):
            return [expand(item) for item in node]
        if isinstance(node, dict):
            return {key: expand(value) if key in ("type", "items", "fields") else value for key, value in node.items()}
        return node

    schema: dict[str, Any] = expand(ROOT)
    return schema


@cache
def fingerprint(release: int) -> bytes:
    """CRC-64-AVRO of the complete schema's canonical form, as the 8 little-endian bytes of single-object encoding."""
    form = fastavro.schema.to_parsing_canonical_form(complete_schema(release))
    return bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
