"""Retry policies: bounded, finite, in their budgets."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.retry import (
    DELAY_MAX,
    NEVER,
    RETRY_AFTER_MAX,
    Backoff,
    Exhausted,
    FailureClass,
    Retried,
    Retry,
    decide_retry,
)

RETRIED = [c for c in FailureClass if c not in NEVER]
COMMON = [c for c in RETRIED if c not in (FailureClass.CONCURRENCY, FailureClass.DEPENDENCY)]
backoffs = st.fixed_dictionaries(
    {
        "max_attempts": st.integers(1, 100),
        "base": st.floats(0, DELAY_MAX) | st.sampled_from([0, 5e-324, 1e-9, 1]),
        "factor": st.floats(1, 1e6) | st.sampled_from([1, 2, 10]),
        "cap": st.floats(0, DELAY_MAX) | st.sampled_from([0, 60, DELAY_MAX]),
        "jitter": st.floats(0, 1),
    }
)
draws = st.floats(0, 1, exclude_max=True)


def delays(policy: Retry, failure_class: FailureClass, draw: float = 0.0) -> list[int]:
    """Delays in milliseconds of a job that always fails with this class, until it is parked."""
    found: list[int] = []
    counts: Counter[FailureClass] = Counter()
    while True:
        counts[failure_class] += 1
        decision = decide_retry(policy, failure_class, counts, draw, None)
        if isinstance(decision, Exhausted):
            return found
        found.append(decision.delay_ms)


@given(backoffs, draws, st.integers(1, 10**6), st.integers(1, 10**6))
def test_delays_are_bounded_and_never_fall(fields: dict[str, Any], draw: float, a: int, b: int) -> None:
    backoff = Backoff(**fields)
    first, second = sorted((a, b))
    assert backoff.delay(first, 0) <= backoff.delay(second, 0) <= backoff.cap
    assert 0 <= backoff.delay(first, draw) <= backoff.cap * (1 + backoff.jitter)


@given(backoffs)
def test_growing_delays_end_at_the_cap(fields: dict[str, Any]) -> None:
    backoff = Backoff(**{**fields, "base": fields["base"] or 1, "factor": max(1.01, fields["factor"])})
    assert backoff.delay(10**6, 0) == backoff.cap


@pytest.mark.parametrize("cap", [0, 60, 5 * 366 * 86400])
@pytest.mark.parametrize("base", [0, 1])
def test_huge_attempts_neither_overflow_nor_raise(base: int, cap: int) -> None:
    policy = Retry(max_attempts=10**7, base=base, factor=10, cap=cap, jitter=0)
    for attempt in (1, 46, 47, 1023, 1024, 1025, 10**6):
        decision = decide_retry(policy, FailureClass.TRANSIENT, {FailureClass.TRANSIENT: attempt}, 0, None)
        assert isinstance(decision, Retried)
        assert 0 <= decision.delay_ms <= cap * 1000
    assert policy.delay(10**6, 0) == (cap if base else 0)


def test_all_attempts_happen_then_the_job_is_parked() -> None:
    policy = Retry(max_attempts=2000, base=1, factor=2, cap=60, jitter=0.5)
    found = delays(policy, FailureClass.TRANSIENT, draw=0.999)
    assert len(found) == 1999
    assert max(found) <= 90_000


def test_delays_in_milliseconds() -> None:
    policy = Retry(max_attempts=8, base=0.29, factor=2, cap=5, jitter=0.5)
    assert delays(policy, FailureClass.TRANSIENT) == [290, 580, 1160, 2320, 4640, 5000, 5000]
    assert delays(policy, FailureClass.TRANSIENT, draw=0.5)[:2] == [362, 725]
    assert delays(Retry(max_attempts=2, base=1.001, jitter=0), FailureClass.TRANSIENT) == [1001]


@pytest.mark.parametrize("failure_class", FailureClass)
def test_attempts_of_each_class_by_default(failure_class: FailureClass) -> None:
    """Five for the common budget, own ones for concurrency and dependency, none where it can't help."""
    attempts = len(delays(Retry(), failure_class)) + 1
    expected = {FailureClass.CONCURRENCY: 20, FailureClass.DEPENDENCY: 30, **dict.fromkeys(NEVER, 1)}
    assert attempts == expected.get(failure_class, 5)


def test_concurrency_is_short_and_dependency_is_long() -> None:
    concurrency, dependency = (
        delays(Retry(), FailureClass.CONCURRENCY),
        delays(Retry(), FailureClass.DEPENDENCY),
    )
    assert max(concurrency) <= 2000
    assert concurrency[0] < 100
    assert sum(dependency) > 30 * 60 * 1000


@given(st.lists(st.sampled_from(COMMON), min_size=1, max_size=12), st.integers(1, 8))
def test_common_budget_is_shared(failures: list[FailureClass], max_attempts: int) -> None:
    """However the classes alternate, a job fails `max_attempts` times in all."""
    policy = Retry(max_attempts=max_attempts)
    counts: Counter[FailureClass] = Counter()
    for at, failure_class in enumerate(failures, 1):
        counts[failure_class] += 1
        parked = isinstance(decide_retry(policy, failure_class, counts, 0, None), Exhausted)
        assert parked == (at >= max_attempts)


def test_own_budgets_and_the_common_one_leave_each_other_alone() -> None:
    policy = Retry(max_attempts=2)
    busy = {FailureClass.CONCURRENCY: 19, FailureClass.DEPENDENCY: 29, FailureClass.TRANSIENT: 1}
    for failure_class in busy:
        assert isinstance(decide_retry(policy, failure_class, busy, 0, None), Retried)
    for failure_class, why in (
        (FailureClass.CONCURRENCY, "20 of 20 concurrency attempts failed"),
        (FailureClass.DEPENDENCY, "30 of 30 dependency attempts failed"),
        (FailureClass.TRANSIENT, "2 of 2 attempts failed"),
    ):
        one_more = {**busy, failure_class: busy[failure_class] + 1}
        assert decide_retry(policy, failure_class, one_more, 0, None) == Exhausted(why)


def test_a_class_of_its_own_has_its_own_backoff_and_budget() -> None:
    policy = Retry(
        max_attempts=2,
        per_class={
            FailureClass.TIMEOUT: Backoff(max_attempts=4, base=7, factor=1, jitter=0),
            FailureClass.CONCURRENCY: Backoff(max_attempts=3, base=1, factor=1, jitter=0),
        },
    )
    assert delays(policy, FailureClass.TIMEOUT) == [7000, 7000, 7000]
    assert delays(policy, FailureClass.CONCURRENCY) == [1000, 1000]
    assert len(delays(policy, FailureClass.DEPENDENCY)) == 29
    timeouts = {FailureClass.TIMEOUT: 3, FailureClass.TRANSIENT: 1}
    assert isinstance(decide_retry(policy, FailureClass.TRANSIENT, timeouts, 0, None), Retried)


@pytest.mark.parametrize("failure_class", sorted(NEVER))
def test_never_means_never(failure_class: FailureClass) -> None:
    decision = decide_retry(Retry(max_attempts=100), failure_class, {failure_class: 1}, 0, 5.0)
    assert decision == Exhausted(f"{failure_class} is never retried")
    with pytest.raises(ValueError, match=f"per_class must not have {failure_class}"):
        Retry(per_class={failure_class: Backoff()})


@pytest.mark.parametrize(
    ("asked", "delay_ms"),
    [
        (None, 1000),
        (0.2, 1000),
        (1.5, 1500),
        (90, 90_000),
        (10**9, int(RETRY_AFTER_MAX * 1000)),
        (math.inf, int(RETRY_AFTER_MAX * 1000)),
        (math.nan, 1000),
        (-5, 1000),
        (-math.inf, 1000),
        ("soon", 1000),
    ],
)
def test_what_the_other_side_asks_for_is_a_bounded_least(asked: Any, delay_ms: int) -> None:
    policy = Retry(base=1, cap=60, jitter=0)
    decision = decide_retry(policy, FailureClass.DEPENDENCY, {FailureClass.DEPENDENCY: 1}, 0, asked)
    assert decision == Retried(delay_ms)


def test_an_ask_never_shortens_a_long_policy() -> None:
    policy = Retry(base=10 * 86400, cap=10 * 86400, jitter=0)
    decision = decide_retry(policy, FailureClass.TRANSIENT, {FailureClass.TRANSIENT: 1}, 0, 10**9)
    assert decision == Retried(10 * 86400 * 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_attempts", bad) for bad in (0, -1, 1.5, True, "5", None)]
    + [("base", bad) for bad in (-1, -1e-9, math.nan, math.inf, True, "1", None, DELAY_MAX + 1)]
    + [("factor", bad) for bad in (0.99, 0, -2, math.nan, math.inf, 1e7, True, "2", None)]
    + [("cap", bad) for bad in (-1, math.nan, math.inf, 1e308, True, "60", None)]
    + [("jitter", bad) for bad in (-0.1, 1.1, math.nan, math.inf, True, "0", None)],
)
@pytest.mark.parametrize("kind", [Backoff, Retry])
def test_bad_settings_are_refused_naming_the_field(kind: type[Backoff], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        kind(**{name: value})


def test_bad_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no failure class 'sometimes'; there are transient, concurrency"):
        Retry(per_class={"sometimes": Backoff()})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"per_class\[timeout\] must be a Backoff, got 5"):
        Retry(per_class={FailureClass.TIMEOUT: 5})  # type: ignore[dict-item]


def test_policies_do_not_change() -> None:
    given_classes = {FailureClass.TIMEOUT: Backoff()}
    policy = Retry(per_class=given_classes)
    given_classes.clear()
    assert FailureClass.TIMEOUT in policy.per_class
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.cap = 1  # type: ignore[misc]
    assert dataclasses.replace(policy, cap=1).per_class == policy.per_class
