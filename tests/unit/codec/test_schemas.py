"""The Avro files and the classes say the same; fingerprints are as Avro's specification has them."""

from __future__ import annotations

import types
import typing
from typing import Any

import fastavro
import msgspec
import pytest
from tests.support.records import fields_of

from rewindq.engine.core.events import BODIES, Body, Event, EventRecord, Status
from rewindq.schemas import catalog

RELEASE = catalog.releases()[catalog.current_release()]
_PLAIN = {str: "string", int: "long", bytes: "bytes", bool: "boolean"}


def avro_type(kind: Any) -> Any:
    """The Avro type of an annotation."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == Status:
        return {"type": "enum", "name": "Status", "symbols": list(typing.get_args(Status))}
    if kind is Body:
        return sorted(BODIES)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return {"type": "array", "items": "Event" if args[0] is Event else avro_type(args[0])}
    if origin in (typing.Union, types.UnionType):
        (inner,) = [arg for arg in args if arg is not type(None)]
        return ["null", avro_type(inner)]
    raise TypeError(kind)


def avro_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What the class's schema file has to hold."""
    hints = fields_of(kind)
    fields = []
    for field in msgspec.structs.fields(kind):
        schema = {"name": field.name, "type": avro_type(hints[field.name])}
        if isinstance(schema["type"], list) and schema["type"][0] == "null":
            schema["default"] = None
        elif field.default is not msgspec.NODEFAULT:
            schema["default"] = [] if field.default == () else field.default
        fields.append(schema)
    doc = " ".join((kind.__doc__ or "").split())
    return {"type": "record", "namespace": "rewindq", "name": kind.__name__, "doc": doc, "fields": fields}


@pytest.mark.parametrize("name", BODIES)
def test_a_bodys_schema_is_its_class(name: str) -> None:
    assert catalog.schema_file(name, RELEASE[name]) == avro_schema(BODIES[name])


@pytest.mark.parametrize("kind", [Event, EventRecord], ids=lambda kind: kind.__name__)
def test_the_envelopes_schema_is_its_class(kind: type[msgspec.Struct]) -> None:
    stored = catalog.schema_file(kind.__name__, RELEASE[kind.__name__])
    for field in stored["fields"]:
        if field["name"] == "body":
            field["type"] = sorted(field["type"])

    assert by_name(stored) == by_name(avro_schema(kind))


def by_name(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema whatever its fields' order, which in the class is ruled by defaults."""
    return {**schema, "fields": sorted(schema["fields"], key=lambda field: str(field["name"]))}


def test_the_most_frequent_bodies_stand_first_in_the_union() -> None:
    """Writers look their branch up from its beginning."""
    (body,) = [field for field in catalog.schema_file("Event", RELEASE["Event"])["fields"] if field["name"] == "body"]

    assert body["type"][:9] == list(BODIES)[:9]
    assert list(BODIES)[:4] == ["JobSubmitted", "JobAccepted", "AttemptStarted", "JobSucceeded"]


def test_every_event_type_and_nothing_else_is_in_the_release() -> None:
    assert set(RELEASE) == {*BODIES, "Event", "EventRecord"}


def test_every_schema_file_belongs_to_a_release() -> None:
    from importlib.resources import files

    stored = {path.name for path in (files("rewindq.schemas") / "avro").iterdir() if path.name.endswith(".avsc")}
    released = {f"{name}.v{version}.avsc" for names in catalog.releases().values() for name, version in names.items()}

    assert stored == released


def test_every_body_documents_itself() -> None:
    assert [name for name, kind in BODIES.items() if not kind.__doc__] == []


def test_fingerprints_are_those_of_avros_specification() -> None:
    """The specification's own test data: the schema "int" has 0x7275d51a3f395c8f, stored little-endian."""
    form = fastavro.schema.to_parsing_canonical_form("int")
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))

    assert fingerprint == 0x7275D51A3F395C8F.to_bytes(8, "little")


def test_a_releases_fingerprint_is_little_endian_crc_64_avro() -> None:
    """Computed here once more, as the specification writes it down."""
    empty = 0xC15D213AA4D7A795
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
        table.append(value)
    for release in catalog.releases():
        crc = empty
        for byte in fastavro.schema.to_parsing_canonical_form(catalog.complete_schema(release)).encode():
            crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
        assert catalog.fingerprint(release) == crc.to_bytes(8, "little")


def test_a_complete_schema_needs_no_other_file() -> None:
    for release in catalog.releases():
        parsed = fastavro.parse_schema(catalog.complete_schema(release))
        assert parsed["name"] == "rewindq.EventRecord"
