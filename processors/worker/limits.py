"""How many jobs of a type may run, start, or run under one key: what an app's limits mean for a worker's queues.

Most apps have none; then nothing is done for a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rewindq.engine.core import state as s
from rewindq.engine.runtime.app import App, JobType
from rewindq.engine.runtime.deployment import Deployment

from .intake import payload_bytes
from .owner import Owner
from .queue import Ready, ReadyQueue, age, ready
from .rates import Rates

_NO_TYPES: frozenset[str] = frozenset()


class Limits:
    """The limits of an app's job types in one worker. `age` is the present step of time, see `queue.age`."""

    def __init__(self, deployment: Deployment, app: App, queues: Mapping[int, ReadyQueue]) -> None:
        self._deployment = deployment
        self._queues = queues
        types = app.types.values()
        self.rates = Rates(app, deployment.partitions)
        self.age = age(deployment.clock.monotonic())
        self._strict = {t.name: t for t in types if t.resource is not None or t.homed}
        self._in_worker = {t.name: t.concurrency for t in types if t.concurrency and t.concurrency_key is None}
        self._under_key = {t.name: t.concurrency or 1 for t in types if t.concurrency_key is not None}
        self._any = bool(self._in_worker) or any(t.rate is not None for t in types)

    def tick(self) -> None:
        """Time has passed."""
        self.age = age(self._deployment.clock.monotonic())

    def full_types(self, running: Counter[str]) -> frozenset[str] | set[str]:
        """Job types at their concurrency limit in this worker, or that have used their rate up."""
        if not self._any:
            return _NO_TYPES
        full = {name for name, limit in self._in_worker.items() if running[name] >= limit}
        full.update(self.rates.used_up(self._deployment.clock.monotonic()))
        return full

    def entry(self, job_id: str, head: s.JobHead) -> Ready:
        """A job as the queue takes it."""
        group, limit = None, 1
        if self._under_key and head.type in self._under_key:
            group, limit = head.key, self._under_key[head.type]
        return ready(head.priority, head.accepted_seq, job_id, head.type, head.resource, group, limit, self.age)

    def leave(self, partition: int, head: s.JobHead) -> None:
        """A job ended, or did not start after all: another one under its key may."""
        if self._under_key and head.type in self._under_key:
            self._queues[partition].leave(head.key)

    def see_block(self, owner: Owner, resource: str | None) -> None:
        """Tells the queue which failed job a resource's later jobs wait behind now, if any."""
        if resource is not None:
            block = owner.states.block(resource)
            self._queues[owner.partition].block(resource, None if block is None else block.jobs[0][0])

    def see_unblocked(self, owner: Owner, resource: str | None) -> None:
        """The same, where a job was blocked by what may have ended."""
        if resource is not None and self._queues[owner.partition].blocks(resource):
            self.see_block(owner, resource)

    def forget(self, owner: Owner, job_id: str) -> None:
        """A job that did not run was cancelled."""
        self._queues[owner.partition].remove(job_id)
        head = owner.states.head(job_id)
        self.see_unblocked(owner, None if head is None else head.resource)

    def missed(self, head: s.JobHead) -> str | None:
        """Which of its type's rules a job was accepted without: by a worker that did not know the type, or the rule."""
        job_type = self._strict.get(head.type)
        if job_type is None:
            return None
        if job_type.resource is not None and head.resource is None:
            return "its resource"
        return self._missed_key(job_type, head) if job_type.homed else None

    def _missed_key(self, job_type: JobType, head: s.JobHead) -> str | None:
        try:
            raw = payload_bytes(self._deployment, head.payload, head.payload_ref)
            key = job_type.key_of(job_type.model.model_validate_json(raw))
        except Exception:  # noqa: BLE001 - its attempt will fail in the same way, and tell it as any failure
            return None
        # The key is not told: it may hold what the type marks secret.
        return None if key == head.key else "the key that its type's limits need"

    def pressing(self, partition: int) -> int:
        """Waiting jobs that will run as soon as there is room: those that keep further ones on the log."""
        queue = self._queues[partition]
        rated = sum(self.rates.waiting(partition, queue).values()) if self.rates else 0
        return len(queue) - queue.stuck - rated

    def until_rate(self, most: float) -> float:
        """Seconds until a job that waits for its rate may start, at most so many."""
        if not self.rates:
            return most
        now = self._deployment.clock.monotonic()
        due = self.rates.next_at(self._queues, now)
        return most if due is None else min(most, max(0.001, due - now))
