"""Clocks."""

from __future__ import annotations

import time

import pytest
from tests.support.clock import VirtualClock

from rewindq.engine.ports.clock import Clock
from rewindq.engine.runtime.clock import SystemClock


def test_the_system_clock_is_the_machines() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1000, time.monotonic()
    now, tick = clock.now_us(), clock.monotonic()
    after = time.time_ns() // 1000, time.monotonic()
    assert before[1] <= tick <= after[1]
    assert before[0] <= now <= after[0]


def test_the_virtual_clock_moves_only_when_told() -> None:
    virtual = VirtualClock(now_us=1_000_000)
    clock: Clock = virtual
    assert (clock.now_us(), clock.monotonic()) == (1_000_000, 0)
    virtual.advance(1.5)
    assert (clock.now_us(), clock.monotonic()) == (2_500_000, 1.5)
    virtual.jump(-2)
    assert (clock.now_us(), clock.monotonic()) == (500_000, 1.5)
    with pytest.raises(ValueError, match="use jump"):
        virtual.advance(-1)
