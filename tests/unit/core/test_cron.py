"""Planned instants around the days on which zones set their clocks, against lists worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindq.engine.core.cron import DUE_MAX, BadExpression, check_expression, due_instants, instants
from rewindq.engine.core.times import datetime_us, parse_time, us_datetime

BERLIN, NEW_YORK, JAKARTA = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Jakarta")
LORD_HOWE, APIA, SAO_PAULO = ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia"), ZoneInfo("America/Sao_Paulo")


def listed(expression: str, zone: tzinfo, after: str, count: int) -> list[str]:
    """The next instants in UTC, to the minute."""
    found = islice(instants(expression, zone, parse_time(after)), count)
    return [f"{us_datetime(instant):%m-%dT%H:%M}" for instant in found]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # Berlin, 2026-03-29: 02:00 becomes 03:00 (01:00 UTC). By the wall: behind the gap, once.
        ("30 2 * * *", BERLIN, "2026-03-28T00:00:00Z", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("0,30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", ["03-29T01:00", "03-30T00:00", "03-30T00:30"]),
        ("0 2,3 * * *", BERLIN, "2026-03-28T12:00:00Z", ["03-29T01:00", "03-30T00:00", "03-30T01:00"]),
        # By elapsed time: every half hour goes on, none of hour 2.
        ("*/30 * * * *", BERLIN, "2026-03-29T00:15:00Z", ["03-29T00:30", "03-29T01:00", "03-29T01:30"]),
        ("*/30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", ["03-30T00:00", "03-30T00:30"]),
        # Berlin, 2026-10-25: 03:00 becomes 02:00 (01:00 UTC). By the wall: the first pass only.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", ["10-25T00:30", "10-26T01:30"]),
        ("30 2 * * *", BERLIN, "2026-10-25T00:30:00Z", ["10-26T01:30"]),
        ("45 2 * * *", BERLIN, "2026-10-25T01:30:00Z", ["10-26T01:45"]),
        # By elapsed time: both passes.
        ("30 * * * *", BERLIN, "2026-10-24T23:45:00Z", ["10-25T00:30", "10-25T01:30", "10-25T02:30"]),
        ("*/30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", ["10-25T00:00", "10-25T00:30", "10-25T01:00", "10-25T01:30"]),
        # New York, 2026-11-01: 02:00 becomes 01:00 (06:00 UTC).
        ("15 1 * * *", NEW_YORK, "2026-11-01T00:00:00Z", ["11-01T05:15", "11-02T06:15"]),
        ("15 1 * * *", NEW_YORK, "2026-11-01T06:10:00Z", ["11-02T06:15"]),
        # Lord Howe moves by half an hour: 2026-10-04 02:00 becomes 02:30 (10-03T15:30 UTC).
        ("15 2 * * *", LORD_HOWE, "2026-10-02T20:00:00Z", ["10-03T15:30", "10-04T15:15"]),
        # Jakarta never sets its clocks.
        ("0 9 * * MON-FRI", JAKARTA, "2026-11-27T00:00:00Z", ["11-27T02:00", "11-30T02:00", "12-01T02:00"]),
        # Sao Paulo until 2019: midnight of 2018-11-04 did not exist (03:00 UTC).
        ("0 0 * * *", SAO_PAULO, "2018-11-03T12:00:00Z", ["11-04T03:00", "11-05T02:00"]),
        ("0 0 29 2 *", UTC, "2026-01-01T00:00:00Z", ["02-29T00:00", "02-29T00:00"]),
        ("*/20 * * * * *", UTC, "2026-01-01T00:00:40Z", ["01-01T00:01", "01-01T00:01", "01-01T00:01"]),
    ],
)
def test_instants(expression: str, zone: tzinfo, after: str, expected: list[str]) -> None:
    assert listed(expression, zone, after, len(expected)) == expected


def test_a_day_that_a_zone_left_out() -> None:
    """Samoa had no 2011-12-30: its 12:00 comes when the clock has reached it, on the 31st's first minute."""
    assert listed("0 12 * * *", APIA, "2011-12-29T23:00:00Z", 2) == ["12-30T10:00", "12-30T22:00"]


ZONES = (UTC, BERLIN, NEW_YORK, JAKARTA, LORD_HOWE, SAO_PAULO)
EXPRESSIONS = (
    "30 2 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "5,35 1-3 * * *",
    "0 0 * * SUN",
    "*/30 2 * * *",
    "59 23 L * *",
)


@settings(max_examples=150, deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    cuts=st.lists(st.integers(0, 40 * 24 * 60), max_size=12),
)
def test_asking_often_or_once_gives_the_same_instants(
    expression: str, zone: tzinfo, start: datetime, cuts: list[int]
) -> None:
    """However the time is cut into looks, each instant is due exactly once; clocks of zones set in between or not."""
    begin = datetime_us(start.replace(tzinfo=UTC))
    looks = sorted({begin + minutes * 60_000_000 for minutes in [*cuts, 12 * 24 * 60]})
    found: list[int] = []
    after = begin
    for now in looks:
        due, cut = due_instants(expression, zone, after, now)
        assert not cut or len(due) == DUE_MAX
        if cut:
            return
        found += due
        after = due[-1] if due else after
    once = []
    for instant in instants(expression, zone, begin):
        if instant > looks[-1]:
            break
        once.append(instant)
    assert found == once
    assert found == sorted(set(found))


@pytest.mark.parametrize("years", [0.1, 1, 30])
def test_a_long_past_costs_no_more_and_gives_the_newest(years: float) -> None:
    now = parse_time("2026-11-29T12:00:03Z")
    due, cut = due_instants("*/5 * * * * *", UTC, now - int(years * 366 * 86_400) * 1_000_000, now)
    assert cut
    assert len(due) == DUE_MAX
    assert us_datetime(due[-1]) == datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
    assert us_datetime(due[0]) == us_datetime(due[-1]) - timedelta(seconds=5 * (DUE_MAX - 1))


@pytest.mark.parametrize(
    "text", ["", "* * * *", "61 * * * *", "* * * * * * *", "a b c d e", "*/0 * * * *", "0 0 31 2 *"]
)
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadExpression, match="no cron expression"):
        check_expression(text)
