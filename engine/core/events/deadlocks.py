"""Jobs that wait for each other: what asks about it, and what is told when it is so."""

from __future__ import annotations

from typing import ClassVar

from .base import Body


class LeaseProbe(Body, frozen=True):
    """Follows who waits for whom, from the waiting request that sent it; no owner records it.

    `stage`: home, of the resource that the path's last one waits for; holder: the job that holds it; victim: the path
    is a cycle, and the partition has the job that is to give way. `probe` is the same along all its ways.
    """

    topic: ClassVar[str] = "commands"
    stage: str
    probe: str
    from_partition: int
    path: bytes
    holder: str | None = None


class DeadlockDetected(Body, frozen=True):
    """The job's request for a lease ends a cycle of jobs that wait for each other, and fails for it.

    `cycle` lists the jobs, each with what it holds and what it waits for, which the next one holds.
    """

    reason: str
    cycle: bytes
