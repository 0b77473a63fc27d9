"""Instants and durations as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rewindq.engine.core.times import (
    DURATION_MAX_US,
    BadTime,
    datetime_us,
    duration_us,
    format_time,
    parse_time,
    us_datetime,
)

FIRST = -62_135_596_800_000_000
LAST = 253_402_300_799_999_999
instants = st.integers(FIRST, LAST)


@given(instants)
@example(FIRST)
@example(LAST)
@example(-1)
@example(0)
@example(2**31 * 1_000_000)
def test_an_instant_is_printed_and_read_back_exactly(us: int) -> None:
    assert parse_time(format_time(us)) == us
    assert datetime_us(us_datetime(us)) == us


@given(instants, instants)
def test_texts_sort_as_the_instants_do(a: int, b: int) -> None:
    assert (format_time(a) < format_time(b)) == (a < b)


def test_every_residue_of_a_millisecond_is_kept() -> None:
    """Floats would lose some of them in the year 2243."""
    start = parse_time("2243-06-01T00:00:00.064Z")
    assert [parse_time(format_time(start + us)) - start for us in range(1000)] == list(range(1000))


@given(instants, st.integers(-14 * 60, 14 * 60))
def test_an_offset_is_taken_off(us: int, minutes: int) -> None:
    try:
        local = us_datetime(us).astimezone(timezone(timedelta(minutes=minutes)))
    except OverflowError:
        return
    assert datetime_us(local) == us
    assert parse_time(local.isoformat()) == us


def test_the_doubled_hour_is_two_instants() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=zone)
    assert datetime_us(first.replace(fold=1)) - datetime_us(first) == 3_600_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00-00:00", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.000001000Z", 1),
        ("1970-01-01T00:00:00.9999990Z", 999_999),
    ],
)
def test_forms_of_rfc_3339(text: str, us: int) -> None:
    assert parse_time(text) == us


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-11-29T12:00:00", "no time zone"),
        ("2026-11-29 12:00:00.5", "no time zone"),
        ("2026-11-29", "write RFC 3339"),
        ("2026-11-29T12:00Z", "write RFC 3339"),
        ("20261129T120000Z", "write RFC 3339"),
        ("2026-11-29T12:00:00+0100", "write RFC 3339"),
        ("2026-11-29T12:00:00.Z", "write RFC 3339"),
        ("٢٠٢٦-11-29T12:00:00Z", "write RFC 3339"),
        ("2026-11-29T12:00:00Z\n", "write RFC 3339"),
        ("latest", "write RFC 3339"),
        ("", "write RFC 3339"),
        ("2026-02-29T12:00:00Z", "day"),
        ("2026-13-01T12:00:00Z", "month"),
        ("2026-11-29T24:00:00Z", "hour"),
        ("2026-11-29T12:00:61Z", "second"),
        ("2016-12-31T23:59:60Z", "leap second"),
        ("2026-11-29T12:00:00.0000001Z", "finer than the microsecond"),
        ("2026-11-29T12:00:00+24:00", "offset"),
        ("0001-01-01T00:00:00+00:01", "years 1 to 9999"),
        ("9999-12-31T23:59:59-00:01", "years 1 to 9999"),
        ("0000-01-01T00:00:00Z", "year"),
    ],
)
def test_what_is_no_instant_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadTime) as refused:
        parse_time(text)
    assert why in str(refused.value)


def test_naive_datetimes_are_refused() -> None:
    with pytest.raises(BadTime, match="no time zone"):
        datetime_us(datetime(2026, 11, 29))


@pytest.mark.parametrize("us", [FIRST - 1, LAST + 1, 10**30])
def test_instants_out_of_range_are_refused(us: int) -> None:
    with pytest.raises(BadTime, match="years 1 to 9999"):
        format_time(us)
    with pytest.raises(BadTime, match="years 1 to 9999"):
        us_datetime(us)


def test_years_are_four_digits() -> None:
    assert format_time(FIRST) == "0001-01-01T00:00:00.000000Z"
    assert us_datetime(FIRST) == datetime(1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (0, 0),
        (-0.0, 0),
        (30, 30_000_000),
        (0.1, 100_000),
        (0.29, 290_000),
        (1e-9, 1),
        (1.0000001, 1_000_001),
        (2_147_483.648, 2_147_483_648_000),
        ("30", 30_000_000),
        ("0.5", 500_000),
        (".5", 500_000),
        (" 30s ", 30_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("5m", 300_000_000),
        ("1.5h", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("2d", 172_800_000_000),
        ("3660d", DURATION_MAX_US),
        (timedelta(seconds=1, microseconds=1), 1_000_001),
    ],
)
def test_durations(value: str | float | timedelta, us: int) -> None:
    assert duration_us(value, "delay") == us


@given(st.floats(0, 300_000_000))
def test_a_duration_is_never_early_nor_a_microsecond_late(seconds: float) -> None:
    exact = Fraction(repr(seconds)) * 1_000_000
    assert exact <= duration_us(seconds, "delay") < exact + 1


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -1,
        -1e-09,
        1000000000000.0,
        316224001,
        "nan",
        "inf",
        "-1",
        "-5s",
        "5 s",
        "s",
        "",
        "5x",
        "1e400",
        "5s later",
        True,
        False,
        None,
        [],
        b"5",
        timedelta(microseconds=-1),
        timedelta.max,
        "3661d",
        "٥s",
        "٥",
        "1_0",
        "1e3",
        "+5",
    ],
)
def test_what_is_no_duration_is_refused_naming_the_field(value: object) -> None:
    with pytest.raises(BadTime) as refused:
        duration_us(value, "lease_ttl")  # type: ignore[arg-type]
    assert str(refused.value).startswith("lease_ttl must be ")
    assert repr(value) in str(refused.value)
