"""Jobs of several worker processes wait for each other, on both logs: one gives way, also while a worker is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.circle_app import WAIT
from tests.support.payments import ROOT, append_jobs, wait_until

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.pending import read_from
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]
COUNT = 3


def at_home(kind: str, partition: int) -> str:
    return next(f"{kind}:{n}" for n in range(1000) if partition_for(f"{kind}:{n}".encode(), 4) == partition)


def submit_circle(settings: Settings, met: Path) -> list[str]:
    """Each job, its resource and the one that it wants on partitions of their own."""
    met.mkdir()
    names = [at_home("stock", (n + 1) % 4) for n in range(COUNT)]
    payloads = [
        {"first": names[n], "second": names[(n + 1) % COUNT], "met": str(met), "count": COUNT} for n in range(COUNT)
    ]
    append_jobs(settings, "nest", payloads, [at_home("key", n) for n in range(COUNT)])
    return [f"job-{n}" for n in range(COUNT)]


@contextmanager
def workers(settings: Settings) -> Iterator[list[subprocess.Popen[bytes]]]:
    arguments = [settings.log, settings.namespace, str(settings.state_dir)]
    started = [
        subprocess.Popen([sys.executable, "-m", "tests.support.circle_app", *arguments], cwd=ROOT) for _ in range(COUNT)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def bodies(deployment: Deployment, kind: type[e.Body]) -> list[tuple[e.EventRecord, e.Body]]:
    """All events of a kind on the lifecycle topic."""
    return [found for partition in range(deployment.partitions) for found in bodies_at(deployment, partition, kind)]


def bodies_at(deployment: Deployment, partition: int, kind: type[e.Body]) -> Iterator[tuple[e.EventRecord, e.Body]]:
    for raw in read_from(deployment, deployment.topics.lifecycle, partition, 0):
        record = deployment.codec.decode(raw.value)
        yield from ((record, event.body) for event in record.events if isinstance(event.body, kind))


def owners(deployment: Deployment) -> set[str]:
    """Which workers own partitions by now."""
    taken = {
        partition: record.worker_id
        for partition in range(deployment.partitions)
        for record, _ in bodies_at(deployment, partition, e.PartitionTaken)
    }
    return set(taken.values())


def last_events(deployment: Deployment, ids: list[str]) -> dict[str, list[str]]:
    """What each job came to last, to see who waits for whom."""
    found: dict[str, list[str]] = {job_id: [] for job_id in ids}
    for topic in (deployment.topics.lifecycle, deployment.topics.domain, deployment.topics.commands):
        for partition in range(deployment.partitions):
            for raw in read_from(deployment, topic, partition, 0):
                record = deployment.codec.decode(raw.value)
                if record.job_id in found:
                    told = [f"{event.body} {event.resource} {event.fencing_token}" for event in record.events]
                    found[record.job_id].append(f"p{partition}@{record.seq}/{record.attempt} {record.lamport} {told}")
    return {job_id: told[-30:] for job_id, told in found.items()}


@pytest.mark.parametrize("kill", [False, True], ids=["in peace", "one is killed"])
def test_a_circle_over_worker_processes(settings: Settings, tmp_path: Path, kill: bool) -> None:
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()

        def ended() -> bool:
            with Past(deployment) as past:
                return all(past.find(job_id).state.status == s.SUCCEEDED for job_id in ids)

        with workers(settings) as started:
            # A partition that passes on gives its jobs back, which opens the circle by itself.
            wait_until(lambda: len(owners(deployment)) == COUNT, "each worker has its partitions", 60)
            ids = submit_circle(settings, tmp_path / "met")
            if kill:
                wait_until(lambda: len(bodies(deployment, e.LeaseRequested)) >= COUNT, "all wait for each other", 60)
                started[0].kill()
            try:
                wait_until(ended, "all have succeeded", WAIT / 2)
            except AssertionError as error:
                raise AssertionError(f"{error}: {last_events(deployment, ids)}") from None
        if not kill:
            ((record, body),) = bodies(deployment, e.DeadlockDetected)
            assert isinstance(body, e.DeadlockDetected)
            assert record.job_id == "job-2", "the greatest id"
            assert all(f"job {job_id} holds" in body.reason for job_id in ids)
            gave_up = {record.job_id for record, _ in bodies(deployment, e.LeaseRefused)}
            assert gave_up <= {"job-2"}, "nobody waited for its whole time"
        assert verify(deployment)["violations"] == []
