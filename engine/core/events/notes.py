"""What becomes of the notes under effects' keys when their jobs are long over."""

from __future__ import annotations

from .base import Body


class KeysExpired(Body, frozen=True):
    """What was known under these keys is dropped: their jobs ended at `ended_before` (microseconds) or earlier."""

    ended_before: int
    keys: tuple[str, ...]
