"""The rates of job types, each kept by the one worker that owns the type's home partition."""

from __future__ import annotations

from collections.abc import Mapping

from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.rate import Bucket, Rate
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.rules import rate_key

from .queue import ReadyQueue


class Rates:
    """Buckets of the types whose home partition this worker owns."""

    def __init__(self, app: App, partitions: int) -> None:
        #: Home partition -> its types with their rates.
        self._homes: dict[int, dict[str, Rate]] = {}
        for job_type in app.types.values():
            if job_type.rate is not None:
                home = partition_for(rate_key(job_type.name).encode(), partitions)
                self._homes.setdefault(home, {})[job_type.name] = job_type.rate
        self._buckets: dict[str, Bucket] = {}

    def __bool__(self) -> bool:
        """Whether any type has a rate here."""
        return bool(self._buckets)

    def adopt(self, partition: int, now: float) -> None:
        """The partition is owned from now on: its buckets are empty, what the former owner started may be new."""
        for name, rate in self._homes.get(partition, {}).items():
            self._buckets[name] = Bucket(rate, now)

    def drop(self, partition: int) -> None:
        """The partition passed on."""
        for name in self._homes.get(partition, ()):
            self._buckets.pop(name, None)

    def used_up(self, now: float) -> list[str]:
        """Types that may not start now."""
        return [name for name, bucket in self._buckets.items() if not bucket.ready(now)]

    def reserve(self, job_type: str) -> None:
        """A start is decided."""
        self._buckets[job_type].reserve()

    def spend(self, job_type: str, now: float, *, starts: bool) -> None:
        """A decided start is durable: it happens now, or never."""
        bucket = self._buckets.get(job_type)
        if bucket is not None and starts:
            bucket.spend(now)
        elif bucket is not None:
            bucket.give_back()

    def waiting(self, partition: int, queue: ReadyQueue) -> dict[str, int]:
        """How many jobs wait for their type's rate on a partition, by type."""
        found = {name: queue.aside(name) for name in self._homes.get(partition, ())}
        return {name: count for name, count in found.items() if count}

    def reason(self, job_type: str) -> str:
        """Why they wait, for people."""
        return f"waits for its turn: jobs of its type start at {self._buckets[job_type].rate.text} at most"

    def next_at(self, queues: Mapping[int, ReadyQueue], now: float) -> float | None:
        """When the next waiting job may start."""
        if not self._buckets:
            return None
        names = [name for partition, queue in queues.items() for name in self.waiting(partition, queue)]
        return min((self._buckets[name].next_at(now) for name in names if name in self._buckets), default=None)
