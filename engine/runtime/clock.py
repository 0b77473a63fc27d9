"""The machine's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `Clock` with the operating system's clocks."""

    def now_us(self) -> int:
        """Wall time in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()
