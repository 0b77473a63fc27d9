"""The log's clock in this process: asked for once, carried on by the monotonic clock. Delays are told by it alone.

Wall clocks of machines differ, and are set; a delay that was counted on one machine's wall clock would be early or late
on another one's. The log has one clock for all. What is told lies between two looks at the monotonic clock: `now_us`
takes it as early as it may have been and `after_us` as late, so that nothing is due before its time on any machine.
"""

from __future__ import annotations

from collections.abc import Callable

#: What is cut off a log's time: Kafka's is in milliseconds.
_RESOLUTION_US = 1_000


class LogTime:
    """`ask` tells the log's time in microseconds, `monotonic` this process's seconds. Asks when first needed."""

    def __init__(self, ask: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._ahead: tuple[int, int] | None = None

    def measure(self) -> int:
        """Asks the log anew; by how much its clock differs from what it was taken for. Raises LogError."""
        before = self._elapsed_us()
        told = self._ask()
        was, self._ahead = self._ahead, (told - self._elapsed_us(), told + _RESOLUTION_US - before)
        return 0 if was is None else self._ahead[0] - was[0]

    def now_us(self) -> int:
        """Microseconds since 1970 by the log's clock, or a little less. Raises LogError when it has to be asked."""
        return self._ahead_by()[0] + self._elapsed_us()

    def after_us(self, delay: int) -> int:
        """The log's time in `delay` microseconds, or a little more. Raises LogError when it has to be asked."""
        return self._ahead_by()[1] + self._elapsed_us() + delay

    def _ahead_by(self) -> tuple[int, int]:
        if self._ahead is None:
            self.measure()
        assert self._ahead is not None
        return self._ahead

    def _elapsed_us(self) -> int:
        return int(self._monotonic() * 1_000_000)
