"""What makes jobs wait, beyond time and room: recorded, so that the next owner and every reader know it, too."""

from __future__ import annotations

from .base import Body


class KeyBlocked(Body, frozen=True):
    """The failed job keeps later jobs of its resource waiting until it succeeds or is cancelled."""

    reason: str
