"""Which partitions a member owns, and under which group generation its commits go."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rewindq.engine.ports.log import LogError

_PREFIX = b"CGMDv2:"


class GroupMetadata(NamedTuple):
    """A consumer's membership as the client library serialises it for transactions."""

    raw: bytes
    generation: int
    member_id: str

    @property
    def joined(self) -> bool:
        """Whether it names a membership at all.

        The library gives out "no membership" after the group has dropped a member, and a broker takes an
        offset commit without membership for one of a plain client: it would not be fenced. So such a commit
        is never sent.
        """
        return self.generation >= 0 and bool(self.member_id)


def read_metadata(raw: bytes) -> GroupMetadata:
    """Reads the library's serialised form: prefix, generation (int32), group id and member id ended by NUL.

    Raises LogError for another form: without reading it, a member could not tell that it was dropped.
    """
    head = len(_PREFIX) + 4
    fields = raw[head:].split(b"\0")
    if not raw.startswith(_PREFIX) or len(fields) < 3:
        raise LogError(
            f"this confluent-kafka writes group metadata in an unknown form ({raw[:16]!r}): use the "
            "version that this release was tested with"
        )
    (generation,) = struct.unpack_from("=i", raw, len(_PREFIX))
    return GroupMetadata(raw, generation, fields[1].decode())
