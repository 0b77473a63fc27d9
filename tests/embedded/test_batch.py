"""Batches: what goes in comes out, in few bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.log import refusals
from rewindq.engine.log.sqlite import batch
from rewindq.engine.ports.log import Append, AppendRefused, Record

BLOBS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=20)), max_size=3).map(tuple)
STAMPS = st.integers(-(2**62), 2**62) | st.integers(0, 5)
APPENDS = st.lists(st.builds(Append, st.just("t"), st.just(3), BLOBS, BLOBS, STAMPS, HEADERS), max_size=40)


def _decode(batches: list[batch.Batch]) -> list[Record]:
    records: list[Record] = []
    for one in batches:
        base = len(records)
        records += batch.decode("t", 3, base, one.records, one.min_ts, one.codec, one.data)
    return records


@given(APPENDS)
def test_records_survive(appends: list[Append]) -> None:
    batches = batch.encode(appends)
    expected = [
        Record(a.topic, a.partition, i, a.timestamp_ms, a.key, a.value, a.headers) for i, a in enumerate(appends)
    ]
    assert _decode(batches) == expected
    assert [one.max_ts for one in batches] == [max(a.timestamp_ms for a in appends) for _ in batches]


@pytest.mark.parametrize(("count", "size", "batches"), [(256, 10, 1), (257, 10, 2), (4, 100_000, 2), (3, 10**6, 3)])
def test_batches_are_split(count: int, size: int, batches: int) -> None:
    appends = [Append("t", 3, None, bytes([i % 256]) * size, i) for i in range(count)]
    encoded = batch.encode(appends)
    assert len(encoded) == batches
    assert [one.value for one in _decode(encoded)] == [one.value for one in appends]


def test_a_record_that_is_too_large_is_refused_by_topic() -> None:
    with pytest.raises(AppendRefused, match="t/3"):
        batch.encode([Append("t", 3, None, bytes(refusals.RECORD_BYTES_MAX + 1), 1)])
    batch.encode([Append("t", 3, None, bytes(refusals.RECORD_BYTES_MAX), 1)])


def test_text_like_records_shrink() -> None:
    bodies = [json.dumps({"job": f"job-{i * 7919}", "state": "running", "note": "x" * 40}).encode() for i in range(250)]
    (one,) = batch.encode([Append("t", 3, b"key-%d" % i, body, 1_700_000_000_000 + i) for i, body in enumerate(bodies)])
    assert len(one.data) < 0.3 * sum(map(len, bodies))


def test_every_field_is_in_the_chain() -> None:
    digest = batch.digest_of(b"x")
    values = {
        batch.chain(b"p" * 16, 1, 2, 3, 4, 1, digest),
        batch.chain(b"q" * 16, 1, 2, 3, 4, 1, digest),
        batch.chain(b"p" * 16, 2, 2, 3, 4, 1, digest),
        batch.chain(b"p" * 16, 1, 3, 3, 4, 1, digest),
        batch.chain(b"p" * 16, 1, 2, 4, 4, 1, digest),
        batch.chain(b"p" * 16, 1, 2, 3, 5, 1, digest),
        batch.chain(b"p" * 16, 1, 2, 3, 4, 0, digest),
        batch.chain(b"p" * 16, 1, 2, 3, 4, 1, batch.digest_of(b"y")),
    }
    assert len(values) == 8
