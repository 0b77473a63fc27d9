"""Waking those who wait for a commit, within one process."""

from __future__ import annotations

import threading


class Bell:
    """Rung after each commit of this process; `count` says how often."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = threading.Condition()

    def ring(self) -> None:
        """Wakes all who wait."""
        with self._rung:
            self.count += 1
            self._rung.notify_all()

    def wait(self, count: int, timeout: float) -> bool:
        """Whether it was rung since `count`; waits up to `timeout` seconds for it."""
        with self._rung:
            return self._rung.wait_for(lambda: self.count != count, timeout)
