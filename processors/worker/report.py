"""How a worker is to run, and what it tells of itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from rewindq.engine.effects.threads import THREAD_WAIT


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker runs. `grace` seconds are given to running handlers at shutdown.

    `thread_wait` seconds are given to the thread of a plain handler or effect that ran out of its time, before its job
    goes to a person. A lease that was waited for over `deadlock_after` seconds makes the worker look for a deadlock.
    """

    concurrency: int = 100
    threads: int = 16
    grace: float = 10.0
    thread_wait: float = THREAD_WAIT
    deadlock_after: float = 1.0
    name: str = field(default_factory=socket.gethostname)


@dataclass
class Report:
    """What a worker did, for its end and for metrics. `at_least`: it may be more.

    Of what waits now, `held` jobs wait for a quarantine's end, `blocked` ones behind a failed job, `unknown` ones for a
    worker that knows their type, `unparked` parked ones for the investigation topic to take their entry. `stopped`
    tells of each assigned partition that stands still why it does.
    """

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    turns: int = 0
    records: int = 0
    owned: int = 0
    blocked: int = 0
    unknown: int = 0
    held: int = 0
    idle: bool = False
    worker: str = ""
    handovers: int = 0
    handover_max_s: float = 0.0
    at_least: bool = False
    unparked: int = 0
    stopped: list[str] = field(default_factory=list)

    @property
    def processed(self) -> int:
        """Jobs that ended: well, or in the investigation queue, or cancelled."""
        return self.succeeded + self.failed

    def add(self, other: Report) -> None:
        """Counts another worker's work in."""
        for name in ("succeeded", "failed", "retried", "turns", "records", "handovers", "blocked", "unknown"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.handover_max_s = max(self.handover_max_s, other.handover_max_s)

    def handed_over(self, seconds: float) -> None:
        """Partitions passed to another worker; from its asking to the last commit it took so long."""
        self.handovers += 1
        self.handover_max_s = max(self.handover_max_s, seconds)
