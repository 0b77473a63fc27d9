"""Recordings made by the real worker on a log in memory, and replays of them in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.ports.log import Append
from rewindq.engine.replay.recording import Attempt, Recording
from rewindq.engine.replay.replays import make_request
from rewindq.engine.replay.running import run
from rewindq.engine.replay.source import JobPast, open_job
from rewindq.engine.replay.wire import Reply
from rewindq.engine.runtime.app import App, LoadedApp
from rewindq.engine.runtime.clock import SystemClock
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.report import Report, WorkerOptions
from rewindq.processors.worker.worker import Worker

PARTITIONS = 2
LIMIT = 20.0


class Replay:
    """What a replay in this process came to."""

    def __init__(self, reply: Reply) -> None:
        self.outcome = reply.outcome
        self.failed_step = reply.failed_step
        self.reason = reply.reason
        self.failure_class = reply.failure_class
        self.divergences: list[dict[str, Any]] = msgspec.json.decode(reply.divergences)
        codec = Codec()
        self.records = [codec.decode(data) for _, data in reply.records]

    @property
    def kinds(self) -> list[tuple[str, str | None]]:
        """Kind and step of each divergence, in the recording's order."""
        return [(one["kind"], one["step"]) for one in self.divergences]

    def bodies(self, *kinds: type[e.Body]) -> list[Any]:
        """The bodies of a fork's own events."""
        events = [event for record in self.records for event in record.events]
        return [event.body for event in events if not kinds or isinstance(event.body, kinds)]


def deployment(folder: Path, blobs: Any = None, **settings: Any) -> Deployment:
    """A deployment on a new log in memory."""
    made = Settings(log="memory:///test", state_dir=folder / "state", partitions=PARTITIONS, **settings)
    found = Deployment(made, MemoryLog(), Codec(), blobs, SystemClock())
    found.ensure_topics()
    return found


def submit(place: Deployment, job_type: str, payload: Mapping[str, Any], job_id: str, key: str) -> None:
    """Appends a submission to the key's partition."""
    data = values.encode(values.plain(dict(payload)))
    inline, ref = place.large(data)
    body = e.JobSubmitted(job_type, inline, ref, values.digest(data))
    record = e.EventRecord(e.UNNUMBERED, 0, place.clock.now_us(), 0, "test", job_id, 0, (e.Event(body),))
    home = partition_for(key.encode(), PARTITIONS)
    producer = place.log.producer()
    producer.append([Append(place.topics.jobs, home, key.encode(), place.codec.encode(record), 1)])
    producer.close()


def work(place: Deployment, app: App, until: Callable[[Report], bool] | None = None) -> None:
    """Runs the real worker until nothing is left to do."""
    loaded = LoadedApp(app, "test:app", "c0de0001")

    async def go() -> None:
        worker = Worker(place, loaded, WorkerOptions(grace=1.0))
        async with asyncio.timeout(LIMIT):
            await worker.run(until or (lambda report: report.idle))

    asyncio.run(go())


def record(place: Deployment, app: App, job_type: str, payload: Mapping[str, Any], key: str) -> JobPast:
    """Submits one job, runs it live, and opens its past."""
    submit(place, job_type, payload, "job-1", key)
    work(place, app)
    return open_job(place, "job-1")


def dry_run(
    place: Deployment,
    job: JobPast,
    app: App,
    number: int | None = None,
    recording: Recording | None = None,
    **options: Any,
) -> Replay:
    """A dry-run in this process; `recording` stands in for the job's own."""
    if recording is not None:
        job = job.with_recording(recording)
    attempt = job.recording.attempt(number)
    assert attempt.started is not None
    request = make_request(place, job, attempt, "dry-run", "test:app", attempt.started.seq, LIMIT)
    return _run(place, job, app, msgspec.structs.replace(request, **options))


def fork(place: Deployment, job: JobPast, app: App, base: int, number: int | None = None, **options: Any) -> Replay:
    """A fork's run in this process; nothing is appended."""
    attempt: Attempt = job.recording.attempt(number)
    request = make_request(place, job, attempt, "fork", "test:app", base, LIMIT)
    return _run(place, job, app, msgspec.structs.replace(request, branch="b", **options))


def _run(place: Deployment, job: JobPast, app: App, request: Any) -> Replay:
    loaded = LoadedApp(app, "test:app", "c0de0002")
    return Replay(asyncio.run(run(request, loaded, job.past.store, place.blobs)))


def cut(recording: Recording, seq: int) -> Recording:
    """The recording as it would be if the log ended before an event."""
    records: list[e.EventRecord] = []
    for one in {at.record.seq: at.record for at in recording.events}.values():
        events = one.events[: max(0, seq - one.seq)]
        if events:
            records.append(msgspec.structs.replace(one, events=events))
    return Recording.of(recording.job_id, recording.partition, records)
