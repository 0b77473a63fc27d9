"""Order-preserving key encoding of the versioned families (pure).

A versioned key is `escape(key)` followed by the position as 8 big-endian bytes. Escaping turns each 0x00
into 0x00 0xFF and ends the key with 0x00 0x01, so byte order is kept, a key that is a prefix of another one
or holds NULs never mixes with it, and a key's versions lie side by side, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

_NUL, _ESCAPED = b"\x00", b"\x00\xff"
_END = b"\x00\x01"
_AFTER = b"\x00\x02"
_SEQ = Struct(">Q")
SEQ_BYTES = 8
SEQ_MAX = 2**64 - 1

#: A position as 8 bytes. Raises struct.error outside of 0..SEQ_MAX.
pack_seq: Callable[[int], bytes] = _SEQ.pack


def escape(key: bytes) -> bytes:
    """What all versions of `key`, and of no other key, start with."""
    return key.replace(_NUL, _ESCAPED) + _END


def escape_prefix(prefix: bytes) -> bytes:
    """What all versions of all keys that start with `prefix` start with."""
    return prefix.replace(_NUL, _ESCAPED)


def versioned(key: bytes, seq: int) -> bytes:
    """The stored key of one version."""
    return escape(key) + _SEQ.pack(seq)


def split(stored: bytes) -> tuple[bytes, int]:
    """The key and position of a stored version."""
    key = stored[: -SEQ_BYTES - len(_END)].replace(_ESCAPED, _NUL)
    return key, seq_of(stored)


def seq_of(stored: bytes) -> int:
    """The position of a stored version."""
    return int.from_bytes(stored[-SEQ_BYTES:], "big")


def after(stored: bytes) -> bytes:
    """The smallest stored key behind all versions of this version's key."""
    return stored[: -SEQ_BYTES - len(_END)] + _AFTER
