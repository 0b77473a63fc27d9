"""The current release reads every released one; changes that would break that are refused by schema and field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from rewindq.schemas import catalog, compat

Schema = dict[str, Any]


def schema() -> Schema:
    """The current complete schema, to be changed."""
    return copy.deepcopy(catalog.complete_schema(catalog.current_release()))


def event_of(whole: Schema) -> Schema:
    (field,) = [field for field in whole["fields"] if field["name"] == "events"]
    event: Schema = field["type"]["items"]
    return event


def field_of(record: Schema, name: str) -> Schema:
    (field,) = [field for field in record["fields"] if field["name"] == name]
    found: Schema = field
    return found


def body_of(whole: Schema, name: str) -> Schema:
    (body,) = [member for member in field_of(event_of(whole), "body")["type"] if member["name"] == name]
    found: Schema = body
    return found


def test_the_current_release_reads_every_released_one() -> None:
    assert compat.check_releases() == []


def test_a_schema_reads_itself() -> None:
    assert compat.problems(schema(), schema()) == []


def add_a_field_with_a_default(whole: Schema) -> None:
    body_of(whole, "JobSucceeded")["fields"].append({"name": "cost", "type": ["null", "long"], "default": None})


def add_a_body(whole: Schema) -> None:
    field_of(event_of(whole), "body")["type"].append({"type": "record", "name": "JobPaused", "fields": []})


def add_a_symbol(whole: Schema) -> None:
    field_of(event_of(whole), "status")["type"]["symbols"].append("postponed")


def make_a_field_nullable(whole: Schema) -> None:
    field_of(body_of(whole, "AttemptLost"), "worker")["type"] = ["null", "string"]


def widen_a_number(whole: Schema) -> None:
    field_of(body_of(whole, "AttemptLost"), "lost")["type"] = "double"


def reorder_the_union(whole: Schema) -> None:
    event_of(whole)["fields"].reverse()


@pytest.mark.parametrize(
    "change",
    [add_a_field_with_a_default, add_a_body, add_a_symbol, make_a_field_nullable, widen_a_number, reorder_the_union],
)
def test_a_compatible_change_is_accepted(change: Callable[[Schema], None]) -> None:
    reader = schema()
    change(reader)

    assert compat.problems(schema(), reader) == []


def add_a_field(whole: Schema) -> None:
    body_of(whole, "JobSucceeded")["fields"].append({"name": "cost", "type": "long"})


def narrow_a_type(whole: Schema) -> None:
    field_of(body_of(whole, "AttemptLost"), "lost")["type"] = "int"


def change_a_type(whole: Schema) -> None:
    field_of(body_of(whole, "AttemptLost"), "worker")["type"] = "long"


def forbid_null(whole: Schema) -> None:
    field_of(body_of(whole, "JobSucceeded"), "result")["type"] = "bytes"


def remove_a_field(whole: Schema) -> None:
    fields = body_of(whole, "JobSucceeded")["fields"]
    fields.remove(field_of(body_of(whole, "JobSucceeded"), "result_ref"))


def rename_a_field(whole: Schema) -> None:
    field_of(body_of(whole, "JobSucceeded"), "result_ref")["name"] = "result_blob"


def remove_a_symbol(whole: Schema) -> None:
    field_of(event_of(whole), "status")["type"]["symbols"].remove("skipped")


def rename_a_body(whole: Schema) -> None:
    body_of(whole, "LeaseExpired")["name"] = "LeaseOverdue"


def remove_a_body(whole: Schema) -> None:
    field_of(event_of(whole), "body")["type"].remove(body_of(whole, "LeaseExpired"))


def change_an_array(whole: Schema) -> None:
    field_of(body_of(whole, "StateChanged"), "deleted")["type"]["items"] = "long"


def rename_the_record(whole: Schema) -> None:
    whole["name"] = "Record"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (add_a_field, "JobSucceeded.cost: the field was added without a default"),
        (narrow_a_type, "AttemptLost.lost: long cannot be read as int"),
        (change_a_type, "AttemptLost.worker: string cannot be read as long"),
        (forbid_null, "JobSucceeded.result: union member null was removed or renamed"),
        (remove_a_field, "JobSucceeded.result_ref: the field was removed"),
        (rename_a_field, "JobSucceeded.result_ref: the field was removed"),
        (remove_a_symbol, "Event.status: symbol 'skipped' of Status was removed or renamed"),
        (rename_a_body, "Event.body: union member LeaseExpired was removed or renamed"),
        (remove_a_body, "Event.body: union member LeaseExpired was removed or renamed"),
        (change_an_array, "StateChanged.deleted: string cannot be read as long"),
        (rename_the_record, "EventRecord was renamed to Record"),
    ],
)
def test_an_incompatible_change_is_refused_by_name(change: Callable[[Schema], None], problem: str) -> None:
    reader = schema()
    change(reader)

    found = compat.problems(schema(), reader)

    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize("change", [add_a_field, narrow_a_type, change_a_type, remove_a_symbol, remove_a_body])
def test_what_is_refused_is_refused_for_a_reason(change: Callable[[Schema], None]) -> None:
    """Avro's own reader fails on the same changes."""
    from io import BytesIO

    reader = schema()
    change(reader)
    body = ("rewindq.LeaseExpired", {"holder": "a"})
    if change is add_a_field:
        body = ("rewindq.JobSucceeded", {"result": None, "result_ref": None, "duration": 1})
    if change in (narrow_a_type, change_a_type):
        body = ("rewindq.AttemptLost", {"reason": "r", "worker": "w", "lost": 1})
    event = {"status": "skipped", "elapsed": 0, "body": body}
    record = {"seq": 0, "lamport": 0, "timestamp": 0, "epoch": 0, "worker_id": "w", "attempt": 0, "events": [event]}
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema()), record)
    data.seek(0)

    with pytest.raises(fastavro.read.SchemaResolutionError):
        fastavro.schemaless_reader(data, fastavro.parse_schema(schema()), fastavro.parse_schema(reader))


def test_the_command_says_so_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compat.main() == 0
    old, broken = schema(), schema()
    remove_a_body(broken)
    monkeypatch.setattr(catalog, "releases", lambda: {1: {}, 2: {}})
    monkeypatch.setattr(catalog, "complete_schema", lambda release: old if release == 1 else broken)

    assert compat.main() == 1
    assert "release 1: Event.body: union member LeaseExpired was removed or renamed" in capsys.readouterr().err
