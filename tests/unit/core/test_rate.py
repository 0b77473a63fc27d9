"""A rate is never passed in any period, whoever keeps it, and is nearly used up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.rate import BadRate, Bucket, Rate

#: Sums of floats are off by less.
TINY = 1e-6


@pytest.mark.parametrize(
    ("text", "starts", "seconds"), [("100/s", 100, 1), ("10/m", 10, 60), ("5/h", 5, 3600), ("1/d", 1, 86400)]
)
def test_a_rate_is_read(text: str, starts: int, seconds: float) -> None:
    assert Rate.parse(text) == (text, starts, seconds)


@pytest.mark.parametrize("text", ["", "0/s", "-1/s", "1.5/s", "10", "10/w", "10/s ", "10 /s", "9999999999/s", None, 10])
def test_what_is_no_rate_is_refused_with_the_form(text: object) -> None:
    with pytest.raises(BadRate, match="'100/s', '10/m'"):
        Rate.parse(text)  # type: ignore[arg-type]


def most_in_a_period(times: list[float], seconds: float) -> int:
    """The most starts in any half-open period."""
    return max((sum(t <= other < t + seconds - TINY for other in times) for t in times), default=0)


@given(
    starts=st.integers(1, 90),
    gaps=st.lists(st.floats(0, 0.4), min_size=1, max_size=120),
    delays=st.lists(st.floats(0, 0.3), min_size=1),
    takeovers=st.sets(st.integers(0, 119), max_size=4),
)
def test_no_period_has_more_starts(starts: int, gaps: list[float], delays: list[float], takeovers: set[int]) -> None:
    """Starts are decided as soon as they may, and happen later, together; owners change."""
    rate, now, times = Rate.parse(f"{starts}/s"), 0.0, [0.0][:0]
    bucket = Bucket(rate, now)
    for at, gap in enumerate(gaps):
        now += gap
        if at in takeovers:
            bucket = Bucket(rate, now)
        decided = 0
        while bucket.ready(now):
            bucket.reserve()
            decided += 1
        now += delays[at % len(delays)]  # the commit
        for _ in range(decided):
            bucket.spend(now)
            times.append(now)
    assert most_in_a_period(times, 1.0) <= starts


@pytest.mark.parametrize("starts", [1, 7, 19, 20, 100, 5000])
def test_what_is_sustained_is_nearly_the_rate(starts: int) -> None:
    rate, now, given = Rate.parse(f"{starts}/s"), 0.0, 0
    bucket = Bucket(rate, now)
    while now < 10:
        if bucket.ready(now):
            bucket.reserve()
            bucket.spend(now)
            given += 1
        now = max(bucket.next_at(now), now + 1e-5)
    assert 0.95 * starts * 10 - 1 <= given <= starts * 10


@pytest.mark.parametrize("starts", [1, 2, 19, 20, 21, 40, 100, 333])
def test_a_full_bucket_and_what_fills_it_are_no_more_than_the_rate(starts: int) -> None:
    bucket, now, times = Bucket(Rate.parse(f"{starts}/s"), 0.0), 100.0, [0.0][:0]
    while now < 102.5:
        now = bucket.next_at(now)
        while bucket.ready(now):
            bucket.reserve()
            bucket.spend(now)
            times.append(now)
        now += 1e-9
    assert most_in_a_period(times, 1.0) in (starts, starts - 1)


def test_a_decided_start_that_does_not_happen_gives_its_token_back() -> None:
    bucket = Bucket(Rate.parse("1/s"), 0.0)
    assert not bucket.ready(0.5)
    assert bucket.next_at(0.5) == 1.0
    assert bucket.ready(1.0)
    bucket.reserve()
    assert not bucket.ready(1.5)
    bucket.give_back()
    assert bucket.ready(1.5)


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(Rate.parse("1/s"), 10.0)
    assert not bucket.ready(5.0)
    assert not bucket.ready(10.9)
