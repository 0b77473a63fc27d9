"""Instants and durations as people write them: RFC 3339 and `30s`, to and from whole microseconds. Pure.

An instant is microseconds since 1970 in UTC, exact for the years 1 to 9999. A duration is microseconds from 0
to ten years; what falls between two microseconds is rounded up, so that nothing is ever due early.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:)([0-9]{2})(?:\.([0-9]+))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
#: Longest duration: beyond it a mistaken unit is likelier than a wish.
DURATION_MAX_US = 10 * 366 * 86_400 * 1_000_000
_UNITS_US = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}
_SECONDS = re.compile(r"[0-9]*\.?[0-9]+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)")


class BadTime(ValueError):
    """A text or value is no instant or duration; names it and says what is expected."""


def format_time(us: int) -> str:
    """An instant in RFC 3339, UTC, with six decimals: texts sort as the instants do. Raises BadTime."""
    if not _FIRST_US <= us <= _LAST_US:
        raise BadTime(f"{us} microseconds since 1970 lie outside of the years 1 to 9999")
    at = _EPOCH + timedelta(microseconds=us)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> int:
    """The instant of an RFC 3339 text with `Z` or an offset. Raises BadTime, for a time without zone too."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise BadTime(f"{text!r} is no time: write RFC 3339, for example 2026-11-29T12:00:00Z")
    day, clock, seconds, fraction, zone = match.groups()
    if zone is None:
        raise BadTime(f"{text!r} has no time zone: add Z for UTC or an offset such as +02:00")
    if seconds == "60":
        raise BadTime(f"{text!r} is a leap second, which clocks do not show: write :59 or the next minute")
    if len((fraction or "").rstrip("0")) > 6:
        raise BadTime(f"{text!r} is finer than the microsecond: write at most six decimals")
    offset = "+00:00" if zone in "Zz" else zone
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{seconds}.{(fraction or '')[:6]:0<6}{offset}")
    except ValueError as error:
        raise BadTime(f"{text!r} is no time: {error}") from error
    return datetime_us(at)


def datetime_us(at: datetime) -> int:
    """The instant of an aware datetime. Raises BadTime for a naive one, or outside of the years 1 to 9999."""
    offset = at.utcoffset()
    if offset is None:
        raise BadTime(f"{at.isoformat()} has no time zone; give it one")
    us = (at.replace(tzinfo=None) - _EPOCH.replace(tzinfo=None) - offset) // _MICROSECOND
    if not _FIRST_US <= us <= _LAST_US:
        raise BadTime(f"{at.isoformat()} lies outside of the years 1 to 9999 in UTC")
    return us


def us_datetime(us: int) -> datetime:
    """The instant as a datetime in UTC. Raises BadTime outside of the years 1 to 9999."""
    if not _FIRST_US <= us <= _LAST_US:
        raise BadTime(f"{us} microseconds since 1970 lie outside of the years 1 to 9999")
    return _EPOCH + timedelta(microseconds=us)


def are_seconds(value: object) -> bool:
    """Whether this is a number of seconds above 0, finite and up to ten years; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= DURATION_MAX_US / 1e6


def duration_us(value: str | float | timedelta, field: str) -> int:
    """A duration of the setting or argument `field` in microseconds, rounded up.

    A number, or a text that is one, counts seconds; units are `us ms s m h d`, and parts add up (`1h30m`).
    Raises BadTime naming the field: not a duration, NaN, negative, over ten years.
    """
    us = _microseconds(value)
    if us is None:
        raise BadTime(f"{field} must be a duration such as 30s, 1h30m, 2d or a number of seconds, got {value!r}")
    if not 0 <= us <= DURATION_MAX_US:
        raise BadTime(f"{field} must be from 0 seconds to ten years, got {value!r}")
    return int(us.to_integral_value(ROUND_CEILING))


def _microseconds(value: str | float | timedelta) -> Decimal | None:
    """Exact microseconds; None where the value is no duration."""
    if isinstance(value, timedelta):
        return Decimal(value // _MICROSECOND)
    if isinstance(value, str):
        return _text_microseconds(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    # A float's shortest text is what was written: 0.1 is 100000 microseconds, not one more.
    return Decimal(repr(value) if isinstance(value, float) else value) * 10**6


def _text_microseconds(text: str) -> Decimal | None:
    if _SECONDS.fullmatch(text):
        return Decimal(text) * 10**6
    parts: list[tuple[str, str]] = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum((Decimal(number) * _UNITS_US[unit] for number, unit in parts), Decimal(0))
