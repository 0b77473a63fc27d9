"""Sees that this machine's wall clock was set, or that the machine slept: it is recorded, and the log is asked anew.

Nothing waits by the wall clock, except for schedules, which have a timeline of their own. But after a sleep the
monotonic clock, which carries the log's time on, has stood still; so what moved is asked of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from rewindq.engine.core import events as e
from rewindq.engine.core.timeline import JUMP_MIN
from rewindq.engine.ports.log import LogError
from rewindq.engine.runtime.deployment import Deployment

from .owner import About, Owner

log = structlog.get_logger(__name__)


class Clocks:
    """A worker's look at its clocks. Used from the worker's event loop only."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._ahead: int | None = None
        self._asking: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Asks the log for its time. Raises LogError."""
        await asyncio.get_running_loop().run_in_executor(None, self._deployment.time.measure)

    def look(self, owners: Iterable[Owner]) -> None:
        """Compares this machine's two clocks with the last look; a jump is recorded in the partitions of `owners`."""
        clock = self._deployment.clock
        ahead = clock.now_us() - int(clock.monotonic() * 1_000_000)
        by = 0 if self._ahead is None else ahead - self._ahead
        if self._ahead is None or abs(by) > JUMP_MIN:
            self._ahead = ahead
        if abs(by) > JUMP_MIN:
            log.warning("the wall clock was set, or the machine slept", seconds=by / 1e6)
            for owner in owners:
                owner.append(About(None, 0, b"clock"), (e.Event(e.ClockJumped(by, 0, None)),))
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().run_in_executor(None, self._ask)

    def _ask(self) -> None:
        try:
            moved = self._deployment.time.measure()
        except LogError as error:
            log.warning("the log did not tell its time; delays go on by this machine's clock", error=str(error))
        else:
            log.info("the log was asked for its time", moved_seconds=moved / 1e6)
