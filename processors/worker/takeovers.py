"""The takeovers under way of one worker: each in a thread, tried again while the partition is still assigned.

A partition whose log lacks what it needs stops, told once and by name, and its worker goes on with the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from rewindq.engine.core.merge import GapInLog
from rewindq.engine.ports.log import (
    AppendRefused,
    Fenced,
    LogDamaged,
    LogUnavailable,
    OffsetOutOfRange,
    OutcomeUnknown,
)
from rewindq.engine.ports.store import StoreError, StoreFormat
from rewindq.engine.runtime.recover import StoreAhead

from .inbox import Inbox
from .inputs import InputLost
from .takeover import Taken

log = structlog.get_logger(__name__)

#: A partition whose commit or takeover failed is taken over anew after this many seconds.
RETRY_DELAY = 0.2
#: A store that cannot be used so often in a row ends the worker, by name: another machine may do better.
STORE_TRIES = 10
_PASSING = (Fenced, OutcomeUnknown, AppendRefused, LogUnavailable, StoreError)
#: What no other try mends: a person has to see to the log or the store.
_STOPPING = (InputLost, OffsetOutOfRange, StoreAhead, GapInLog, LogDamaged)


class Takeovers:
    """Used from the worker's event loop. `adopt` gets what was taken, `fail` what a person has to see to."""

    def __init__(
        self,
        inbox: Inbox,
        take: Callable[[int], Taken],
        adopt: Callable[[int, Taken], None],
        fail: Callable[[BaseException], None],
        wake: Callable[[], None],
    ) -> None:
        self._inbox = inbox
        self._take = take
        self._adopt = adopt
        self._fail = fail
        self._wake = wake
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._store_failures: Counter[int] = Counter()
        self._stopped: dict[int, str] = {}

    @property
    def stopped(self) -> dict[int, str]:
        """Why assigned partitions stand still until a person has acted."""
        return {partition: why for partition, why in self._stopped.items() if self._inbox.owns(partition)}

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def any_of(self, partitions: Iterable[int]) -> bool:
        """Whether one of these is being taken over."""
        return any(partition in self._under_way for partition in partitions)

    def begin(self, partition: int) -> None:
        """Begins to take an assigned partition over, unless that is under way."""
        if partition not in self._under_way:
            self._stopped.pop(partition, None)
            self._under_way[partition] = asyncio.get_running_loop().create_task(self._run(partition))

    async def _run(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            taken = await loop.run_in_executor(None, self._take, partition)
        except _PASSING as error:
            self._failed(partition, error)
        except _STOPPING as error:
            self._stopped[partition] = str(error)
            log.error("partition stopped; the others go on", partition=partition, reason=str(error))
        except Exception as error:  # noqa: BLE001 - told to the operator by the daemon, with what to do
            self._fail(error)
        else:
            del self._store_failures[partition]
            self._adopt(partition, taken)
        finally:
            del self._under_way[partition]
            self._wake()

    def _failed(self, partition: int, error: Exception) -> None:
        """Tries again. What passes on during its takeover is its next owner's business, its store included."""
        if not self._inbox.owns(partition):
            return
        if isinstance(error, StoreError):
            self._store_failures[partition] += 1
            if isinstance(error, StoreFormat) or self._store_failures[partition] >= STORE_TRIES:
                self._fail(error)
                return
        log.warning("takeover failed; trying again", partition=partition, error=str(error))
        asyncio.get_running_loop().call_later(RETRY_DELAY, self._inbox.rejoin, [partition])
