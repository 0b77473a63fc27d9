"""Rates of a job type: how they are written, and the bucket that keeps one. Pure; the time is given."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"([1-9][0-9]{0,8})/([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: One start in so many may follow its predecessor at once; the sustained rate is lower by as much.
_BURST_OF = 20


class BadRate(ValueError):
    """A rate is not written as `N/s`, `N/m`, `N/h` or `N/d`."""


class Rate(NamedTuple):
    """At most `starts` starts in any period of `seconds`."""

    text: str
    starts: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Reads `"100/s"` and its like. Raises BadRate."""
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise BadRate(
                f"rate {text!r} must be a whole number a second, minute, hour or day: '100/s', '10/m', '5/h', '1/d'"
            )
        return cls(text, int(match[1]), _SECONDS[match[2]])


class Bucket:
    """Tokens for starts, on a monotonic clock. Over any period it gives at most the rate's number.

    A bucket of `burst` tokens that fills by `r` a second gives at most `burst + r * seconds` in a period, the last of
    them at its very end: so `r` is chosen that this is the number. A new bucket is empty: whoever took over does not
    know what its predecessor has just started.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self.burst = 1 + rate.starts // _BURST_OF
        self.per_second = (rate.starts - self.burst + 1) / rate.seconds
        self._tokens = 0.0
        self._at = now
        self._reserved = 0

    def ready(self, now: float) -> bool:
        """Whether a token is left for one more start."""
        self._fill(now)
        return self._tokens - self._reserved >= 1

    def next_at(self, now: float) -> float:
        """The time at which there will be one, if nothing is started until then."""
        self._fill(now)
        return now + max(0.0, (1 + self._reserved - self._tokens) / self.per_second)

    def reserve(self) -> None:
        """A start is decided; its token is spent when it happens."""
        self._reserved += 1

    def give_back(self) -> None:
        """A decided start will not happen."""
        self._reserved = max(0, self._reserved - 1)

    def spend(self, now: float) -> None:
        """A decided start happens."""
        self._fill(now)
        self.give_back()
        self._tokens -= 1

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self.burst), self._tokens + max(0.0, now - self._at) * self.per_second)
        self._at = max(self._at, now)
