"""The clock port: the only way in which the engine learns what time it is."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time for records and people, monotonic time for durations. Never compare two machines' clocks."""

    def now_us(self) -> int:
        """Wall time in microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...
