"""A worker's short memory of customers' points. Nothing tells it when an account is written: it goes stale."""

from __future__ import annotations

import time

#: Seconds that an entry is kept.
KEEP_S = 0.25


class RecentPoints:
    """Points by account, as they were when they were remembered."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, int, float]] = {}

    def get(self, key: str) -> tuple[int, int, float] | None:
        """`(points, version of the account, age in seconds)`, None when they are not known or were kept too long."""
        found = self._entries.get(key)
        if found is None:
            return None
        points, version, since = found
        age = time.monotonic() - since
        return (points, version, age) if age < KEEP_S else None

    def remember(self, key: str, points: int, version: int) -> None:
        """Keeps an account's points for a while."""
        self._entries[key] = (points, version, time.monotonic())
