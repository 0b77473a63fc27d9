"""Planned instants of a cron expression in a time zone. Pure: the zone's rules are handed in.

Expressions have five fields (minute, hour, day of month, month, day of week), or six with seconds first. Where the
zone sets its clocks, the rule is Debian cron's:

- A five-field expression that names its hours and minutes (neither begins with `*`) runs by the wall: an instant in
  the missing hour runs at the first minute behind it, one in the doubled hour runs in the first pass only.
- Any other one runs by elapsed time: nothing in the missing hour, both passes of the doubled hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from .times import datetime_us, us_datetime

#: Missed instants that are looked up at most: run by policy `all`, or counted.
DUE_MAX = 1000
_SECOND = 1_000_000
#: Stretches of the past that are searched for due instants, the shortest first.
_WINDOWS = tuple(seconds * _SECOND for seconds in (3600, 86_400, 32 * 86_400, 366 * 86_400))


class BadExpression(ValueError):
    """A cron expression that says nothing. Names it and the field."""


class Due(NamedTuple):
    """Instants whose time has come, oldest first; of more than DUE_MAX the newest (`cut`)."""

    instants: tuple[int, ...]
    cut: bool


def check_expression(expression: str) -> None:
    """Raises BadExpression."""
    try:
        CronSim(expression, datetime(2000, 1, 1))
    except CronSimError as error:
        raise BadExpression(
            f"{expression!r} is no cron expression ({error}): write 5 fields (minute hour day month weekday), "
            "or 6 with seconds first"
        ) from error


def instants(expression: str, zone: tzinfo, after: int) -> Iterator[int]:
    """The instants behind `after`, strictly rising; it ends where none comes within 50 years. Microseconds."""
    newest = after
    for found in CronSim(expression, us_datetime(after).astimezone(zone)):
        instant = datetime_us(found)
        # By the wall, a time of the doubled hour is found again in its second pass, and several of the missing
        # hour come out as the same instant.
        if instant > newest:
            newest = instant
            yield instant


def next_instant(expression: str, zone: tzinfo, after: int) -> int | None:
    """The first instant behind `after`, None when there is none within 50 years."""
    return next(instants(expression, zone, after), None)


def due_instants(expression: str, zone: tzinfo, after: int, now: int) -> Due:
    """The instants in `(after, now]`. The work is bounded, however long ago `after` is."""
    for window in (*_WINDOWS, now - after):
        start = max(after, now - window)
        found: deque[int] = deque(maxlen=DUE_MAX + 1)
        for instant in instants(expression, zone, start):
            if instant > now:
                break
            found.append(instant)
        if start == after or len(found) > DUE_MAX:
            break
    cut = len(found) > DUE_MAX
    return Due(tuple(found)[-DUE_MAX:], cut)
