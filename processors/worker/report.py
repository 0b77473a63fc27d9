"""How a worker is to run, and what it tells of itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker runs. `grace` seconds are given to running handlers at shutdown."""

    concurrency: int = 100
    threads: int = 16
    grace: float = 10.0
    name: str = field(default_factory=socket.gethostname)


@dataclass
class Report:
    """What a worker did, for its end and for metrics.

    `blocked`: jobs that wait behind a failed one, now; `unknown`: jobs that wait for a worker that knows their type.
    """

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    turns: int = 0
    records: int = 0
    owned: int = 0
    blocked: int = 0
    unknown: int = 0
    idle: bool = False

    @property
    def processed(self) -> int:
        """Jobs that ended: well, or in the investigation queue, or cancelled."""
        return self.succeeded + self.failed
