"""Clocks for tests: one that stands still until it is moved, and one that runs and can be moved."""

from __future__ import annotations

from rewindq.engine.runtime.clock import SystemClock


class VirtualClock:
    """Implements `Clock`. `advance` lets time pass; `jump` sets the wall clock only, as an operator would."""

    def __init__(self, now_us: int = 1_790_000_000_000_000) -> None:
        self._wall_us = now_us
        self._elapsed_us = 0

    def now_us(self) -> int:
        """Wall time in microseconds since 1970, UTC."""
        return self._wall_us

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks. Raises ValueError for a negative duration."""
        if seconds < 0:
            raise ValueError(f"time does not pass backwards ({seconds} s); use jump")
        self._elapsed_us += round(seconds * 1_000_000)
        self._wall_us += round(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """The wall clock is set forward or back; no time passes."""
        self._wall_us += round(seconds * 1_000_000)


class Movable(SystemClock):
    """The system's clock, with seconds added by hand."""

    added = 0.0
    #: By how much the wall alone is set forward.
    ahead = 0.0

    def now_us(self) -> int:
        return super().now_us() + int((self.added + self.ahead) * 1e6)

    def monotonic(self) -> float:
        return super().monotonic() + self.added
