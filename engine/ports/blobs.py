"""The blob port: large bodies kept by content hash, outside the log."""

from __future__ import annotations

from typing import Protocol


class BlobMissing(Exception):
    """No blob with this reference, or its bytes do not match their hash. Names the reference and the place."""


class Blobs(Protocol):
    """A content-addressed store. A reference is `sha256:<64 hex digits>`; the same bytes have the same reference."""

    def put(self, data: bytes) -> str:
        """Keeps the bytes durably and returns their reference."""
        ...

    def get(self, ref: str) -> bytes:
        """The bytes of a reference, their hash checked. Raises BlobMissing."""
        ...
