"""Registry framing: the client's own `mock://` registry, and a real one where SCHEMA_REGISTRY_URL is set."""

from __future__ import annotations

import builtins
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from rewindq.engine.codec.avro import Codec, UndecodableRecord, UnknownSchema
from rewindq.engine.codec.registry import RegistryRefused, RegistryUnavailable, open_registry
from rewindq.engine.core.events import Event, EventRecord, NoteRecorded
from rewindq.schemas import catalog

RECORD = EventRecord(1, 2, 3, 4, "w", "job", 1, (Event(NoteRecorded(b"[]")),))
URLS = ["mock://test", *filter(None, [os.environ.get("SCHEMA_REGISTRY_URL")])]


@pytest.mark.parametrize("url", URLS)
def test_records_begin_with_a_zero_byte_and_the_schemas_id(url: str) -> None:
    registry = open_registry(url, subject="rewindq.test-value")
    codec = Codec(registry)
    data = codec.encode(RECORD)

    assert data[0] == 0
    schema_id = int.from_bytes(data[1:5], "big")
    assert schema_id == registry.register(catalog.complete_schema(catalog.current_release()))
    assert registry.schema(schema_id)["name"] == "EventRecord"
    assert codec.decode(data) == RECORD
    assert data[5:] == Codec().encode(RECORD)[10:]


@pytest.mark.parametrize("url", URLS)
def test_one_codec_reads_both_framings(url: str) -> None:
    codec = Codec(open_registry(url, subject="rewindq.test-value"))
    mixed = [Codec().encode(RECORD), codec.encode(RECORD), Codec().encode(RECORD)]

    assert [codec.decode(data) for data in mixed] == [RECORD] * 3


@pytest.mark.parametrize("url", URLS)
def test_an_id_that_the_registry_does_not_know_is_an_unknown_schema(url: str) -> None:
    codec = Codec(open_registry(url, subject="rewindq.test-value"))
    with pytest.raises(UnknownSchema, match="has no schema 2147483000"):
        codec.decode(b"\0" + (2_147_483_000).to_bytes(4, "big") + b"body")


class Fake:
    """A registry as the codec sees it."""

    def __init__(self, schemas: dict[int, Any]) -> None:
        self.schemas = schemas
        self.asked: list[int] = []

    def register(self, schema: dict[str, Any]) -> int:
        return 1

    def schema(self, schema_id: int) -> dict[str, Any]:
        self.asked.append(schema_id)
        found: dict[str, Any] = self.schemas[schema_id]
        return found


def test_a_schema_is_asked_for_once_and_resolved() -> None:
    older = json.loads(json.dumps(catalog.complete_schema(catalog.current_release())))
    older["fields"] = [field for field in older["fields"] if field["name"] != "code_version"]
    fake = Fake({9: older})
    codec = Codec(fake)
    data = b"\0\0\0\0\x09" + Codec().encode(RECORD)[10:-1]

    assert [codec.decode(data) for _ in range(3)] == [RECORD] * 3
    assert fake.asked == [9]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "record", "name": "Order", "namespace": "shop", "fields": []}, "is of shop.Order, not of"),
        ({"type": "record", "fields": []}, "is no Avro schema that can be read"),
        ({"type": "nonsense"}, "is no Avro schema that can be read"),
        ({"type": "array", "items": "null"}, "is of None, not of rewindq.EventRecord"),
    ],
)
def test_records_of_other_schemas_are_undecodable(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(UndecodableRecord, match=reason):
        Codec(Fake({5: schema})).decode(b"\0\0\0\0\x05" + b"\xff" * 9)


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the server's `status` and `body`."""

    def do_GET(self) -> None:
        self.server.asked += 1  # type: ignore[attr-defined]
        body = json.dumps(self.server.body).encode()  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    made: Any = HTTPServer(("127.0.0.1", 0), Answers)
    made.asked = 0
    made.url = f"http://user:hush@127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_refusal_says_what_the_registry_said_and_hides_the_password(server: Any) -> None:
    server.status, server.body = 409, {"error_code": 409, "message": "reader field cost has no default"}
    with pytest.raises(RegistryRefused, match="cost has no default; the subject's compatibility") as caught:
        open_registry(server.url).register({"type": "record", "name": "x", "fields": []})
    assert "hush" not in str(caught.value)


def test_a_wrong_address_is_no_unknown_schema(server: Any) -> None:
    """Else a typing error in a setting would park every job."""
    server.status, server.body = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    with pytest.raises(RegistryRefused, match="check the address"):
        open_registry(server.url).schema(3)


def test_a_missing_schema_is_an_unknown_one(server: Any) -> None:
    server.status, server.body = 404, {"error_code": 40403, "message": "Schema not found"}
    with pytest.raises(UnknownSchema, match="has no schema 3"):
        open_registry(server.url).schema(3)


@pytest.mark.parametrize("extra", [{"schemaType": "JSON"}, {"schema": '"int"'}])
def test_other_kinds_of_schema_are_unknown(server: Any, extra: dict[str, str]) -> None:
    server.status, server.body = 200, {"schema": json.dumps({"type": "object"}), **extra}
    with pytest.raises(UnknownSchema):
        open_registry(server.url).schema(3)


def test_a_registry_asks_once_for_a_schema(server: Any) -> None:
    schema = {"type": "record", "name": "x", "fields": []}
    server.status, server.body = 200, {"schema": json.dumps(schema)}
    registry = open_registry(server.url)

    assert [registry.schema(3) for _ in range(3)] == [schema] * 3
    assert server.asked == 1


def test_a_registry_that_does_not_answer_is_named_with_the_next_step() -> None:
    with pytest.raises(RegistryUnavailable, match=r"http://127\.0\.0\.1:9 does not answer .*check schema_registry_url"):
        open_registry("http://127.0.0.1:9").register({"type": "record", "name": "x", "fields": []})


def test_an_unreachable_registry_never_makes_a_record_undecodable() -> None:
    """It is the registry's trouble, not the record's: a job must not be parked for it."""

    class Down(Fake):
        def schema(self, schema_id: int) -> dict[str, Any]:
            raise RegistryUnavailable("down")

    with pytest.raises(RegistryUnavailable):
        Codec(Down({})).decode(b"\0\0\0\0\x05" + b"body")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("confluent_kafka.schema_registry"):
            raise ModuleNotFoundError("No module named 'httpx'", name="httpx")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(RegistryUnavailable, match=r"httpx is missing.*pip install 'rewindq\[registry\]'"):
        open_registry("http://127.0.0.1:9")
