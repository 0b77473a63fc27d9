"""Records to bytes and back: all that is written is read; of anything else the codec says why it is none."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.records import bodies, records

from rewindq.engine.codec.avro import REGISTRY, SINGLE_OBJECT, Codec, UndecodableRecord, UnknownSchema
from rewindq.engine.core.events import BODIES, Event, EventRecord, JobSubmitted, NoteRecorded, StateChanged
from rewindq.schemas import catalog

CODEC = Codec()
FRAME = SINGLE_OBJECT + catalog.fingerprint(catalog.current_release())
RECORD = EventRecord(
    5,
    6,
    1_790_000_000_000_000,
    2,
    "worker",
    "job",
    1,
    (
        Event(StateChanged(3, b'{"a":1}', ("b", "c")), step="save", resource="order:1", resource_version=4),
        Event(NoteRecorded(b"[]"), elapsed=70_000),
    ),
    "order:1",
    code_version="abc",
)


def zigzag(number: int) -> bytes:
    """An Avro long."""
    rest = (number << 1) ^ (number >> 63)
    rest &= 2**64 - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


@pytest.mark.parametrize("name", sorted(BODIES))
@settings(max_examples=20)
@given(data=st.data())
def test_every_body_comes_back_equal(name: str, data: st.DataObject) -> None:
    record = replace(RECORD, events=(Event(data.draw(bodies(name))),))

    assert CODEC.decode(CODEC.encode(record)) == record


@given(record=records())
def test_every_envelope_comes_back_equal(record: EventRecord) -> None:
    assert CODEC.decode(CODEC.encode(record)) == record


@settings(max_examples=10)
@given(record=records())
def test_the_same_record_is_the_same_bytes_for_every_codec(record: EventRecord) -> None:
    assert Codec().encode(record) == CODEC.encode(record)


def test_the_frame_is_the_avro_single_object_mark_and_fingerprint() -> None:
    data = CODEC.encode(RECORD)

    assert data[:2] == bytes.fromhex("c301")
    assert data[2:10] == catalog.fingerprint(catalog.current_release())


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_that_no_reader_could_hold_is_not_written(number: int) -> None:
    with pytest.raises(OverflowError):
        CODEC.encode(EventRecord(number, 0, 0, 0, "w", None, 0, ()))


def test_a_record_cut_at_any_byte_is_undecodable() -> None:
    data = CODEC.encode(RECORD)
    for end in range(len(data)):
        with pytest.raises(UndecodableRecord):
            CODEC.decode(data[:end])


@pytest.mark.parametrize("more", [b"\0", b"x" * 100, CODEC.encode(RECORD)])
def test_bytes_behind_a_record_are_refused(more: bytes) -> None:
    with pytest.raises(UndecodableRecord, match=f"{len(more)} bytes are left over"):
        CODEC.decode(CODEC.encode(RECORD) + more)


@pytest.mark.parametrize("data", [None, b""])
def test_nothing_is_undecodable(data: bytes | None) -> None:
    with pytest.raises(UndecodableRecord, match="empty"):
        CODEC.decode(data)


def test_an_unknown_fingerprint_is_named() -> None:
    data = SINGLE_OBJECT + b"\1\2\3\4\5\6\7\xff" + CODEC.encode(RECORD)[10:]
    with pytest.raises(UnknownSchema, match="01020304050607ff"):
        CODEC.decode(data)


def test_bytes_of_another_program_are_shown() -> None:
    with pytest.raises(UndecodableRecord, match=b'{"job":1'.hex()):
        CODEC.decode(b'{"job":1}')


def test_registry_framing_without_a_registry_says_what_is_missing() -> None:
    with pytest.raises(UnknownSchema, match="schema 258, but no schema_registry_url is set"):
        CODEC.decode(REGISTRY + b"\0\0\1\2" + b"body")


def decodes_or_refuses(data: bytes) -> None:
    """Whatever the bytes are: a record, or UndecodableRecord."""
    try:
        record = CODEC.decode(data)
    except UndecodableRecord:
        return
    assert isinstance(record, EventRecord)
    assert all(type(event.body) in BODIES.values() for event in record.events)


@given(data=st.binary(max_size=200))
@example(data=SINGLE_OBJECT)
@example(data=REGISTRY)
@example(data=REGISTRY + b"\0\0\0")
def test_garbage_is_refused(data: bytes) -> None:
    decodes_or_refuses(data)


@given(body=st.binary(max_size=200))
@example(body=b"\xff" * 30)
@example(body=b"\x80" * 10_000)
def test_garbage_behind_a_good_frame_is_refused_or_a_record(body: bytes) -> None:
    decodes_or_refuses(FRAME + body)


@given(record=records(), flips=st.lists(st.integers(min_value=0), min_size=1, max_size=4))
def test_flipped_bits_are_refused_or_another_record(record: EventRecord, flips: list[int]) -> None:
    data = bytearray(CODEC.encode(record))
    for flip in flips:
        place = flip % (len(data) * 8)
        data[place // 8] ^= 1 << place % 8
    decodes_or_refuses(bytes(data))


def test_each_single_flipped_bit_is_refused_or_another_record() -> None:
    data = CODEC.encode(RECORD)
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        decodes_or_refuses(bytes(flipped))


BEFORE_WORKER = FRAME + b"\0\0\0\0"
BEFORE_EVENTS = BEFORE_WORKER + zigzag(1) + b"w" + b"\0" + b"\0"


@pytest.mark.parametrize("length", [-1, -(2**63), 2**31, 2**40, 2**63 - 1])
@pytest.mark.parametrize("before", [BEFORE_WORKER, BEFORE_EVENTS], ids=["text", "array"])
def test_a_length_bomb_is_refused_without_its_memory(before: bytes, length: int) -> None:
    tracemalloc.start()
    with pytest.raises(UndecodableRecord):
        CODEC.decode(before + zigzag(length) + b"\0" * 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 5_000_000


def test_a_refusal_keeps_its_cause() -> None:
    bad = CODEC.encode(EventRecord(0, 0, 0, 0, "worker", None, 0, ())).replace(b"worker", b"w\xffrker")
    with pytest.raises(UndecodableRecord, match="UnicodeDecodeError") as caught:
        CODEC.decode(bad)
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_a_large_body_comes_back() -> None:
    submitted = JobSubmitted("t", b"x" * 5_000_000, None, "d")
    record = EventRecord(-1, 0, 0, 0, "p", "job", 0, (Event(submitted),))

    assert CODEC.decode(CODEC.encode(record)) == record
