"""Batches: how records lie in a row, column by column, and the hash chain over them.

A body is one byte of flags, then (if timestamps differ) their distances to the smallest, then key lengths,
value lengths, (if there are any) lengths of the headers, then all keys, all values, all headers. Little-
endian; a length of -1 stands for None.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from ...ports.log import Append, Record
from .. import refusals

# Small enough to read one record from the middle cheaply, large enough to compress well.
_RECORDS_MAX = 256
_BYTES_MAX = 256 * 1024
# Below this zlib's fixed cost (about 20 us) buys nothing: a row's pages are written whole anyway.
_COMPRESS_FROM = 512
_LEVEL = 1

PLAIN, ZLIB = 0, 1
_STAMPS, _HEADERS = 1, 2
_CHAINED = struct.Struct("<qIqqB")
_HEADER = struct.Struct("<II")


class Batch(NamedTuple):
    """Encoded records that will be one row. `digest` covers `data`; times in milliseconds."""

    records: int
    min_ts: int
    max_ts: int
    codec: int
    data: bytes
    digest: bytes


def encode(records: Sequence[Append]) -> list[Batch]:
    """Batches of these records, in order. Raises AppendRefused for a record that is too large."""
    starts = range(0, len(records), _RECORDS_MAX)
    return [_encode(chunk) for start in starts for chunk in _split(records[start : start + _RECORDS_MAX])]


def _split(records: Sequence[Append]) -> Iterator[Sequence[Append]]:
    size = sum(len(record.value or b"") + len(record.key or b"") for record in records)
    if size <= _BYTES_MAX or len(records) == 1:
        yield records
        return
    middle = len(records) // 2
    yield from _split(records[:middle])
    yield from _split(records[middle:])


def _encode(records: Sequence[Append]) -> Batch:
    count = len(records)
    keys = [record.key for record in records]
    values = [record.value for record in records]
    stamps = [record.timestamp_ms for record in records]
    lowest, highest = min(stamps), max(stamps)
    lengths = [-1 if blob is None else len(blob) for blob in keys + values]
    flags, columns, tail = 0, [b""], b""
    if lowest != highest:
        flags |= _STAMPS
        columns.append(struct.pack(f"<{count}Q", *[stamp - lowest for stamp in stamps]))
    columns.append(struct.pack(f"<{2 * count}i", *lengths))
    if any(record.headers for record in records):
        flags |= _HEADERS
        headers = [_pack_headers(record.headers) for record in records]
        columns.append(struct.pack(f"<{count}I", *map(len, headers)))
        tail = b"".join(headers)
    columns[0] = bytes((flags,))
    body = b"".join([*columns, *[key for key in keys if key], *[value for value in values if value], tail])
    if len(body) > refusals.RECORD_BYTES_MAX:
        for record in records:
            refusals.check_size(record)
    return _pack(count, lowest, highest, body)


def _pack(count: int, lowest: int, highest: int, body: bytes) -> Batch:
    codec, data = PLAIN, body
    if len(body) >= _COMPRESS_FROM:
        packed = zlib.compress(body, _LEVEL)
        if len(packed) < len(body):
            codec, data = ZLIB, packed
    return Batch(count, lowest, highest, codec, data, digest_of(data))


def _pack_headers(headers: tuple[tuple[str, bytes], ...]) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += (_HEADER.pack(len(encoded), len(value)), encoded, value)
    return b"".join(parts)


def _unpack_headers(packed: bytes) -> tuple[tuple[str, bytes], ...]:
    headers: list[tuple[str, bytes]] = []
    at = 0
    while at < len(packed):
        name_size, value_size = _HEADER.unpack_from(packed, at)
        middle = at + _HEADER.size + name_size
        headers.append((packed[at + _HEADER.size : middle].decode(), packed[middle : middle + value_size]))
        at = middle + value_size
    return tuple(headers)


def decode(topic: str, partition: int, base: int, count: int, min_ts: int, codec: int, data: bytes) -> list[Record]:
    """The records of a batch whose chain was verified."""
    body = zlib.decompress(data) if codec == ZLIB else data
    flags, at = body[0], 1
    stamps: Sequence[int] = [min_ts] * count
    if flags & _STAMPS:
        stamps = [min_ts + more for more in struct.unpack_from(f"<{count}Q", body, at)]
        at += 8 * count
    lengths = struct.unpack_from(f"<{2 * count}i", body, at)
    at += 8 * count
    header_lengths: Sequence[int] = ()
    if flags & _HEADERS:
        header_lengths = struct.unpack_from(f"<{count}I", body, at)
        at += 4 * count
    blobs: list[bytes | None] = []
    for length in lengths:
        if length < 0:
            blobs.append(None)
        else:
            blobs.append(body[at : at + length])
            at += length
    headers = [()] * count if not header_lengths else list(_cut_headers(body, at, header_lengths))
    return [
        Record(topic, partition, base + index, stamps[index], blobs[index], blobs[count + index], headers[index])
        for index in range(count)
    ]


def _cut_headers(body: bytes, at: int, lengths: Sequence[int]) -> Iterator[tuple[tuple[str, bytes], ...]]:
    for length in lengths:
        yield _unpack_headers(body[at : at + length])
        at += length


def digest_of(data: bytes) -> bytes:
    """The digest of a batch's bytes as stored."""
    return blake2b(data, digest_size=16).digest()


def chain(previous: bytes, base: int, count: int, min_ts: int, top_ts: int, codec: int, digest: bytes) -> bytes:
    """The chain value of a batch: it covers all of the partition up to and including this batch."""
    fields = _CHAINED.pack(base, count, min_ts, top_ts, codec)
    return blake2b(previous + fields + digest, digest_size=16).digest()
