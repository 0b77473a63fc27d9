"""The log's own clock: one for all who use the log."""

from __future__ import annotations

import time

from tests.support.logs import LogKit


def test_all_handles_are_told_one_time_that_goes_on(kit: LogKit) -> None:
    kit.needs("topic administration")
    name = kit.topic("clock", retention_ms=3_600_000)
    first, second = kit.log(), kit.log()
    began = time.monotonic()
    told = [log.now_us(name) for log in (first, second, first)]
    assert told == sorted(told)
    assert told[-1] - told[0] <= (time.monotonic() - began) * 1e6 + 1_000
    assert abs(told[0] - time.time() * 1e6) < 600e6
