"""Job types under quarantine: what of them waits stays in the store, out of the queues, until the quarantine is lifted.

Being out of memory, held jobs take no room from others, however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.ports.store import Family

from .owner import Owner
from .queue import ReadyQueue


class _Lift(NamedTuple):
    """A quarantine that was lifted; when `stored` is done, the store shows all that it held."""

    owner: Owner
    job_type: str
    stored: asyncio.Future[None]


class Holds:
    """Takes held jobs out of the queues and brings them back. `requeue(owner, job_id)` queues one."""

    def __init__(self, queues: Mapping[int, ReadyQueue], requeue: Callable[[Owner, str], None]) -> None:
        self._queues = queues
        self._requeue = requeue
        self._lifts: list[_Lift] = []

    def decided(self, owner: Owner, body: e.QuarantineAdded | e.QuarantineLifted) -> None:
        """Follows a decision: held jobs leave the queue at once, lifted ones are back when they are in the store."""
        if isinstance(body, e.QuarantineAdded):
            self._queues[owner.partition].withdraw(body.type)
        else:
            self._lifts.append(_Lift(owner, body.type, owner.durable()))

    def settle(self, now: int) -> None:
        """Queues what waited for quarantines that were lifted; `now` microseconds."""
        ready = [lift for lift in self._lifts if lift.stored.done()]
        if ready:
            self._lifts = [lift for lift in self._lifts if not lift.stored.done()]
            for lift in ready:
                self._bring_back(lift.owner, lift.job_type, now)

    def drop(self, owner: Owner) -> None:
        """The partition has passed on: its next owner finds what waits."""
        self._lifts = [lift for lift in self._lifts if lift.owner is not owner]

    def _bring_back(self, owner: Owner, job_type: str, now: int) -> None:
        for _, raw in list(owner.store.scan(Family.READY)):
            self._back(owner, job_type, raw.decode(), None)
        due_now = []
        for key, _ in owner.store.scan(Family.TIMERS):
            due = int.from_bytes(key[:8], "big")
            if due > now:
                break
            due_now.append((key[8:].decode(), due))
        for job_id, due in due_now:
            self._back(owner, job_type, job_id, due)

    def _back(self, owner: Owner, job_type: str, job_id: str, due: int | None) -> None:
        """Queues a job of the type that stands as the index said when it was scanned."""
        head, job = owner.states.head(job_id), owner.states.job(job_id)
        if head is None or job is None or head.type != job_type:
            return
        if (job.status == s.WAITING) if due is None else (job.status in (s.DELAYED, s.RETRYING) and job.due == due):
            self._requeue(owner, job_id)
