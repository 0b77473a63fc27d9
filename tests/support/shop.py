"""A whole Rewindq in one process for worker tests: an embedded log in a folder, submissions, a worker until idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewindq import App
from rewindq.engine.blobs.folder import FolderBlobs
from rewindq.engine.codec.avro import Codec
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.ports.log import Append, Log
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.clock import SystemClock
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.log_time import LogTime
from rewindq.engine.runtime.recover import PartitionTopics, Tail
from rewindq.engine.runtime.settings import load_settings
from rewindq.engine.store.memory import MemoryStore
from rewindq.processors.worker.report import Report, WorkerOptions
from rewindq.processors.worker.worker import Worker


class Shop:
    """Submit with `submit`, run with `run`, look with `job`, `events` and `aggregate` (all read from the log)."""

    def __init__(self, folder: Path, app: App, *, partitions: int = 1, log: Log | None = None, **settings: Any) -> None:
        self.app = app
        given = {"log": f"sqlite:///{folder}/log.db", "state_dir": folder / "state", "partitions": partitions}
        loaded = load_settings(**{**given, **settings})
        if log is None:
            self.deployment = Deployment.open(loaded)
        else:
            self.deployment = Deployment(loaded, log, Codec(), FolderBlobs(folder / "blobs"), SystemClock())
        # The log tells the time by the deployment's clock, so that a test which moves that one moves both.
        deployment = self.deployment
        deployment.time = LogTime(lambda: deployment.clock.now_us(), lambda: deployment.clock.monotonic())
        self.deployment.ensure_topics()
        self.topics = self.deployment.topics

    def append(self, topic: str, value: bytes | None, key: str = "", partition: int | None = None) -> None:
        """Appends raw bytes to a topic."""
        place = partition_for(key.encode(), self.deployment.partitions) if partition is None else partition
        producer = self.deployment.log.producer()
        now_ms = self.deployment.clock.now_us() // 1000
        producer.append([Append(topic, place, key.encode(), value, now_ms)])
        producer.close()

    def submit(self, type_: str, payload: dict[str, Any] | bytes, job_id: str, **fields: Any) -> None:
        """Appends a submission. `key`, `priority`, `due` go into it."""
        data = payload if isinstance(payload, bytes) else values.encode(payload)
        body = e.JobSubmitted(type_, data, None, values.digest(data), **fields)
        self.input(self.topics.jobs, job_id, body, fields.get("key") or job_id)

    def input(self, topic: str, job_id: str, body: e.Body, key: str, partition: int | None = None) -> None:
        """Appends an input record."""
        now = self.deployment.clock.now_us()
        record = e.EventRecord(e.UNNUMBERED, 0, now, 0, "test", job_id, 0, (e.Event(body),))
        self.append(topic, self.deployment.codec.encode(record), key, partition)

    def run(
        self,
        until: Callable[[Report], bool] = lambda report: report.idle,
        during: Callable[[Worker], Any] | None = None,
        **options: Any,
    ) -> Report:
        """Runs a worker until a condition holds; `during(worker)` is awaited beside it."""

        async def both() -> Report:
            worker = Worker(self.deployment, LoadedApp(self.app, "tests:app", "c0de"), WorkerOptions(**options))
            beside = asyncio.get_running_loop().create_task(during(worker)) if during is not None else None
            report = await worker.run(until)
            if beside is not None:
                await beside
            return report

        return asyncio.run(asyncio.wait_for(both(), 30))

    def fold(self, watch: Any = None) -> list[Tail]:
        """Every partition, folded from the log."""
        tails = []
        for partition in range(self.deployment.partitions):
            source = PartitionTopics(self.topics.lifecycle, self.topics.domain, partition)
            tail = Tail(self.deployment.log, self.deployment.codec, source, MemoryStore(), watch)
            tail.catch_up()
            tails.append(tail)
        return tails

    def job(self, job_id: str) -> s.JobState:
        """Where a job stands."""
        found = [job for tail in self.fold() if (job := tail.states.job(job_id)) is not None]
        assert len(found) == 1, f"{job_id} stands on {len(found)} partitions"
        return found[0]

    def aggregate(self, key: str) -> s.Aggregate:
        """An aggregate's newest version, wherever it is."""
        return next((a for tail in self.fold() if (a := tail.states.aggregate(key)).version), s.NO_AGGREGATE)

    def records(self, job_id: str | None = None) -> list[e.EventRecord]:
        """All records in order, of one job where named."""
        found: list[e.EventRecord] = []
        self.fold(lambda merged: found.append(merged.record))
        return [r for r in found if job_id is None or r.job_id == job_id]

    def bodies(self, job_id: str | None = None) -> list[e.Body]:
        """All bodies in order, of one job where named."""
        return [event.body for record in self.records(job_id) for event in record.events]

    def names(self, job_id: str) -> list[str]:
        """The names of a job's events in order."""
        return [type(body).__name__ for body in self.bodies(job_id)]
