"""Retry policies: which failures are tried again, when, and how often. Pure; the jitter's draw is given.

Validation failures, effects in doubt and cancelled jobs are never retried. Failures of the other classes burn
one common budget (`Retry.max_attempts`), save for a class that has a backoff of its own in `Retry.per_class`:
it burns its own budget, and only that. Concurrency (soon and often) and dependency (slowly and long) have one
unless told otherwise; a timeout counts with the transient ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

#: Longest time that another side's retry-after is honoured, in seconds.
RETRY_AFTER_MAX = 86_400.0
#: Longest delay that a policy may ask for: ten years, in seconds.
DELAY_MAX = 10 * 366 * 86_400.0
#: Growth beyond this is a mistake in units; the first power would pass any cap.
FACTOR_MAX = 1e6


class FailureClass(StrEnum):
    """Classes of failure; the last four are the queue's own."""

    TRANSIENT = "transient"
    CONCURRENCY = "concurrency"
    VALIDATION = "validation"
    DEPENDENCY = "dependency"
    UNKNOWN = "unknown"
    ATTEMPT_LOST = "attempt_lost"
    TIMEOUT = "timeout"
    IN_DOUBT = "in_doubt"
    CANCELLED = "cancelled"


#: Trying again cannot help, or must not happen without a person.
NEVER = frozenset({FailureClass.VALIDATION, FailureClass.IN_DOUBT, FailureClass.CANCELLED})


def _check(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return
    raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


@dataclass(frozen=True)
class Backoff:
    """How often and how fast: `max_attempts` in all, `base * factor ** (n - 1)` seconds after the n-th.

    Delays never pass `cap` seconds; up to `jitter` (0 to 1) of a delay is added at random, so that jobs which
    failed together do not come back together. Raises ValueError naming the field that is out of range.
    """

    max_attempts: int = 5
    base: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        whole = isinstance(self.max_attempts, int) and not isinstance(self.max_attempts, bool)
        if not whole or self.max_attempts < 1:
            raise ValueError(f"max_attempts must be a whole number of 1 or more, got {self.max_attempts!r}")
        _check("base", self.base, 0, DELAY_MAX)
        _check("factor", self.factor, 1, FACTOR_MAX)
        _check("cap", self.cap, 0, DELAY_MAX)
        _check("jitter", self.jitter, 0, 1)

    def delay(self, failures: int, draw: float) -> float:
        """Seconds to wait after the n-th failure; `draw` is from [0, 1)."""
        return self._plain(failures) * (1 + self.jitter * draw)

    def _plain(self, failures: int) -> float:
        if self.base == 0:
            return 0.0
        try:
            return min(float(self.cap), self.base * float(self.factor) ** (max(1, failures) - 1))
        except OverflowError:  # the power is beyond any float, and so beyond the cap
            return float(self.cap)


#: A write conflict is retried soon and often, on its own budget; a dependency slowly and long.
CONCURRENCY = Backoff(max_attempts=20, base=0.02, factor=1.6, cap=2.0, jitter=1.0)
DEPENDENCY = Backoff(max_attempts=30, base=1.0, factor=2.0, cap=120.0, jitter=0.2)
_OWN: Mapping[FailureClass, Backoff] = {
    FailureClass.CONCURRENCY: CONCURRENCY,
    FailureClass.DEPENDENCY: DEPENDENCY,
}


@dataclass(frozen=True)
class Retry(Backoff):
    """A job type's retry policy: its own backoff, and those of classes with a budget of their own.

    `per_class` adds to or replaces those of concurrency and dependency. Raises ValueError naming the field.
    """

    per_class: Mapping[FailureClass, Backoff] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        own = dict(_OWN)
        for name, backoff in self.per_class.items():
            try:
                failure_class = FailureClass(name)
            except ValueError as error:
                known = ", ".join(c for c in FailureClass if c not in NEVER)
                raise ValueError(f"per_class has no failure class {name!r}; there are {known}") from error
            if failure_class in NEVER:
                raise ValueError(f"per_class must not have {failure_class}: it is never retried")
            if not isinstance(backoff, Backoff):
                raise ValueError(f"per_class[{failure_class}] must be a Backoff, got {backoff!r}")
            own[failure_class] = backoff
        object.__setattr__(self, "per_class", own)

    def backoff(self, failure_class: FailureClass) -> Backoff:
        """The backoff that rules a class."""
        return self.per_class.get(failure_class, self)

    def failures(self, failure_class: FailureClass, counts: Mapping[FailureClass, int]) -> int:
        """How much of the class's budget is burnt: its own failures, or all that burn the common budget."""
        if failure_class in self.per_class:
            return counts.get(failure_class, 0)
        return sum(count for other, count in counts.items() if other not in self.per_class)


class Retried(NamedTuple):
    """Run again after so many milliseconds."""

    delay_ms: int


class Exhausted(NamedTuple):
    """Not run again by itself."""

    reason: str


def decide_retry(
    policy: Retry,
    failure_class: FailureClass,
    counts: Mapping[FailureClass, int],
    draw: float,
    retry_after: float | None = None,
) -> Retried | Exhausted:
    """What follows a failure; `counts` are the job's failures by class, this one included.

    `retry_after` seconds, asked for by the other side, are a lower bound of the delay, honoured up to
    RETRY_AFTER_MAX.
    """
    if failure_class in NEVER:
        return Exhausted(f"{failure_class} is never retried")
    backoff = policy.backoff(failure_class)
    failures = policy.failures(failure_class, counts)
    if failures >= backoff.max_attempts:
        what = f"{failure_class} attempts" if failure_class in policy.per_class else "attempts"
        return Exhausted(f"{failures} of {backoff.max_attempts} {what} failed")
    delay = backoff.delay(failures, draw)
    # What the other side says is not ours to trust: anything but a positive number is no wish.
    if isinstance(retry_after, int | float) and retry_after > delay:
        delay = min(retry_after, max(delay, RETRY_AFTER_MAX))
    # Rounded before it is cut, so that 1.001 s are 1001 ms and not 1000.
    return Retried(int(round(delay * 1000, 6)))
