"""Event records to bytes and back.

Without a registry: Avro single-object encoding (marker C3 01, the schema's CRC-64-AVRO fingerprint, the body). With
one: the framing that Confluent's clients use (a zero byte, the schema's id as 4 big-endian bytes, the body). Readers
accept both, and read every released version through Avro's schema resolution.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Protocol

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType

from rewindq.schemas import catalog

from ..core.events import BODIES, Body, Event, EventRecord

SINGLE_OBJECT = b"\xc3\x01"
REGISTRY = b"\x00"
_PREFIX = "rewindq."
_asdict = msgspec.structs.asdict


class UndecodableRecord(Exception):
    """The bytes are not an event record; says why. The caller keeps the original bytes."""


class UnknownSchema(UndecodableRecord):
    """The record names a schema that this version does not know (written by a newer one?)."""


class Registry(Protocol):
    """What the codec needs of a schema registry."""

    def register(self, schema: dict[str, Any]) -> int:
        """The id of the complete schema, registering it when new."""
        ...

    def schema(self, schema_id: int) -> dict[str, Any]:
        """The schema of an id. Raises UnknownSchema."""
        ...


class Codec:
    """Encodes with the current release; decodes every released one.

    With `registry`, encoded records carry the registry's framing instead of the fingerprint.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        self._current = _parsed(catalog.complete_schema(catalog.current_release()))
        self._by_fingerprint: dict[bytes, Any] = {
            catalog.fingerprint(release): _parsed(catalog.complete_schema(release)) for release in catalog.releases()
        }
        self._by_id: dict[int, Any] = {}
        current = catalog.fingerprint(catalog.current_release())
        # The same object, so that `decode` sees that no schema resolution is needed.
        self._by_fingerprint[current] = self._current
        self._frame = SINGLE_OBJECT + current
        if registry is not None:
            schema_id = registry.register(catalog.complete_schema(catalog.current_release()))
            self._frame = REGISTRY + schema_id.to_bytes(4, "big")
            self._by_id[schema_id] = self._current

    def encode(self, record: EventRecord) -> bytes:
        """The record's framed bytes."""
        out = BytesIO()
        out.write(self._frame)
        datum = _asdict(record)
        datum["events"] = [_event_datum(event) for event in record.events]
        fastavro.schemaless_writer(out, self._current, datum)
        return out.getvalue()

    def decode(self, data: bytes | None) -> EventRecord:
        """The record of framed bytes. Raises UndecodableRecord, whatever they are, and what the registry raises."""
        if not data:
            raise UndecodableRecord("the record is empty")
        writer, start = self._writer_schema(data)
        stream = BytesIO(data)
        stream.seek(start)
        try:
            datum = fastavro.schemaless_reader(
                stream, writer, None if writer is self._current else self._current, return_record_name=True
            )
            record = _record(datum)  # type: ignore[arg-type]
        except RecursionError as error:
            raise UndecodableRecord("the record is nested too deeply") from error
        except Exception as error:
            raise UndecodableRecord(f"the body does not fit its schema: {type(error).__name__}: {error}") from error
        if stream.tell() != len(data):
            raise UndecodableRecord(f"{len(data) - stream.tell()} bytes are left over behind the record")
        return record

    def _writer_schema(self, data: bytes) -> tuple[Any, int]:
        if data[:2] == SINGLE_OBJECT and len(data) >= 10:
            schema = self._by_fingerprint.get(data[2:10])
            if schema is None:
                raise UnknownSchema(f"no released schema has the fingerprint {data[2:10].hex()}")
            return schema, 10
        if data[:1] == REGISTRY and len(data) >= 5:
            return self._registered(int.from_bytes(data[1:5], "big")), 5
        raise UndecodableRecord(
            f"the bytes begin with {data[:10].hex()}, neither Avro's single-object mark nor a registry's"
        )

    def _registered(self, schema_id: int) -> Any:
        if self._registry is None:
            raise UnknownSchema(f"the record names registry schema {schema_id}, but no schema_registry_url is set")
        if schema_id not in self._by_id:
            self._by_id[schema_id] = _event_schema(schema_id, self._registry.schema(schema_id))
        return self._by_id[schema_id]


def _parsed(schema: dict[str, Any]) -> Any:
    """One of our schemas, parsed, with only those names that it refers to by name.

    fastavro copies a schema's names for every record that it writes or reads. Ours write nearly every name out where it
    is used, so it would copy some eighty that it never looks up.
    """
    parsed: Any = fastavro.parse_schema(schema)
    referred = _referred(parsed["fields"])
    parsed["__named_schemas"] = {name: found for name, found in parsed["__named_schemas"].items() if name in referred}
    return parsed


def _referred(node: Any) -> set[str]:
    """All texts that stand where a schema names a type."""
    if isinstance(node, str):
        return {node}
    if isinstance(node, list):
        return set().union(*map(_referred, node))
    if isinstance(node, dict):
        return set().union(*(_referred(node[key]) for key in ("type", "items", "values", "fields") if key in node))
    return set()


def _event_schema(schema_id: int, schema: dict[str, Any]) -> Any:
    """A foreign schema, parsed, if it is one of ours at all."""
    try:
        parsed = fastavro.parse_schema(schema)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise UnknownSchema(f"registry schema {schema_id} is no Avro schema that can be read: {error}") from error
    name = parsed.get("name") if isinstance(parsed, dict) else None
    if name != _PREFIX + catalog.ROOT:
        raise UnknownSchema(f"registry schema {schema_id} is of {name}, not of {_PREFIX + catalog.ROOT}")
    return parsed


def _event_datum(event: Event) -> dict[str, Any]:
    datum = _asdict(event)
    body = event.body
    datum["body"] = (_PREFIX + type(body).__name__, _asdict(body))
    return datum


def _record(datum: dict[str, Any]) -> EventRecord:
    datum["events"] = tuple([_event(item) for item in datum["events"]])
    return EventRecord(**datum)


#: Fields of bodies that Avro gives as lists.
_ARRAYS: dict[type[Body], tuple[str, ...]] = {
    kind: arrays
    for kind in BODIES.values()
    if (arrays := tuple(name for name, hint in kind.__annotations__.items() if str(hint).startswith("tuple[")))
}


def _event(datum: dict[str, Any]) -> Event:
    name, fields = datum["body"]
    kind = BODIES[name.removeprefix(_PREFIX)]
    for field in _ARRAYS.get(kind, ()):
        fields[field] = tuple(fields[field])
    datum["body"] = kind(**fields)
    return Event(**datum)
