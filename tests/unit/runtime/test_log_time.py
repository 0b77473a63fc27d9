"""The log's time in a process: nothing is due before its time, however long the log took to answer."""

from __future__ import annotations

from tests.support.clock import VirtualClock

from rewindq.engine.runtime.log_time import LogTime


class SlowLog:
    """Told its time half way of a question that takes `seconds`; its clock is an hour ahead of `clock`."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self.clock, self.seconds, self.ahead, self.asked = clock, seconds, 3_600_000_000, 0

    def __call__(self) -> int:
        self.asked += 1
        self.clock.advance(self.seconds / 2)
        told = self.true_us
        self.clock.advance(self.seconds / 2)
        return told // 1000 * 1000

    @property
    def true_us(self) -> int:
        return self.clock.now_us() + self.ahead


def test_it_is_never_taken_for_later_now_nor_for_earlier_then() -> None:
    clock = VirtualClock()
    log = SlowLog(clock, 0.4)
    time = LogTime(log, clock.monotonic)
    for passed in (0.0, 0.0005, 30.0, 86_400.0):
        clock.advance(passed)
        now, then = time.now_us(), time.after_us(5_000_000)
        assert 0 <= log.true_us - now <= 201_000
        assert 0 <= then - 5_000_000 - log.true_us <= 202_000
    assert log.asked == 1


def test_the_wall_clock_moves_it_not_and_a_measure_does() -> None:
    clock = VirtualClock()
    log = SlowLog(clock, 0.0)
    time = LogTime(log, clock.monotonic)
    assert time.measure() == 0
    before = time.now_us()
    clock.jump(-7200)
    assert time.now_us() == before
    log.ahead += 7_200_000_000 + 5_000_000  # the machine slept for five seconds
    assert time.measure() == 5_000_000
    assert time.now_us() == before + 5_000_000
