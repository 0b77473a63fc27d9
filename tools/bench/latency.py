"""From submit to done at light load: one job at a time, each timed by its own events on one clock.

The client notes when it called `submit`; the end is the moment at which a reader in the same process sees the job's
`JobSucceeded` on the log, so it is durable and readable by anybody.
"""

from __future__ import annotations

import subprocess
import threading
import time

from rewindq.engine.core.events import JobSucceeded
from rewindq.engine.runtime.client import Client, Submission
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import load_settings

from .load import Place, submissions
from .measure import rewindq


def latency(place: Place, app: str, count: int, rate: float) -> list[float]:
    """Milliseconds from submit to the moment at which a reader sees the job succeed, in order of submission."""
    settings = load_settings(log=place.log, namespace=place.namespace, state_dir=place.folder / "state")
    worker = subprocess.Popen(
        rewindq(*place.arguments, "worker", "--app", app), stderr=(place.folder / "worker.log").open("wb")
    )
    try:
        with Deployment.open(settings) as deployment:
            deployment.ensure_topics()
            watcher = _Watcher(deployment)
            sent: dict[str, float] = {}
            with place.client() as client:
                _submit_each(client, sent, [*submissions("noop", 20)], rate)
                watcher.wait_for(set(sent), 60)
                sent.clear()
                _submit_each(client, sent, [*submissions("noop", count, start=1000)], rate)
            watcher.wait_for(set(sent), 60)
            watcher.stop()
            return [1000 * (watcher.seen[job_id] - began) for job_id, began in sent.items()]
    finally:
        worker.terminate()
        worker.wait()


def _submit_each(client: Client, sent: dict[str, float], jobs: list[Submission], rate: float) -> None:
    due = time.perf_counter()
    for job in jobs:
        due += 1 / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        sent[str(job.job_id)] = time.perf_counter()
        client.submit(job.type, job.payload, job_id=job.job_id)


class _Watcher:
    """Notes when each job's success becomes readable."""

    def __init__(self, deployment: Deployment) -> None:
        self.seen: dict[str, float] = {}
        self._deployment = deployment
        topic = deployment.topics.lifecycle
        self._reader = deployment.log.reader(
            {(topic, p): deployment.log.bounds(topic, p)[1] for p in range(deployment.partitions)}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            for record in self._reader.poll(1000, 0.05):
                now = time.perf_counter()
                decoded = self._deployment.codec.decode(record.value)
                if decoded.job_id and any(isinstance(event.body, JobSucceeded) for event in decoded.events):
                    self.seen[decoded.job_id] = now
        self._reader.close()

    def wait_for(self, job_ids: set[str], seconds: float) -> None:
        """Waits until all were seen. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not job_ids <= self.seen.keys():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(job_ids - self.seen.keys())} jobs did not succeed within {seconds:g} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends watching."""
        self._stopping.set()
        self._thread.join()
