"""Which partition a key belongs to: murmur2, as Kafka's Java client computes it."""

from __future__ import annotations

import struct
from functools import lru_cache

_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash (unsigned) of Austin Appleby's MurmurHash2 with Kafka's seed."""
    length = len(data)
    h = 0x9747B28C ^ length
    for word in struct.unpack_from(f"<{length // 4}I", data):
        k = word * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ ((k ^ k >> 24) * _MULTIPLIER & _MASK)
    if length % 4:
        h = (h ^ int.from_bytes(data[length // 4 * 4 :], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=65536)
def partition_for(key: bytes, partitions: int) -> int:
    """The key's partition, as every producer and the embedded log agree on it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
