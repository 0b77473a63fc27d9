"""Faults that a service makes now and then, the same ones for the same seed whatever the order of the calls."""

from __future__ import annotations

import random
from collections import Counter
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong with a call."""

    REFUSE = "refuse"  # an error before anything is booked
    SILENCE = "silence"  # booked, and the answer never comes
    SLOW = "slow"  # booked, and the answer comes late


#: How faults divide.
_WEIGHTS = {Fault.REFUSE: 5, Fault.SILENCE: 3, Fault.SLOW: 2}


class Faults:
    """Draws a fault for `rate` (0 to 1) of the calls. Raises ValueError for another rate."""

    def __init__(self, rate: float, seed: int) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"the rate of faults must be from 0 to 1, got {rate!r}")
        self._rate = rate
        self._seed = seed
        self._calls: Counter[str] = Counter()

    def draw(self, key: str) -> Fault | None:
        """The fault of the next call under a key."""
        self._calls[key] += 1
        chance = random.Random(f"{self._seed}/{key}/{self._calls[key]}")
        if chance.random() >= self._rate:
            return None
        return chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
