"""Putting work on a log for the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewindq.engine.runtime.client import Client, Submission

#: A no-op job's payload is 200 bytes in canonical form.
TEXT = "x" * 189


class Place(NamedTuple):
    """A fresh log with its state folder."""

    log: str
    folder: Path
    namespace: str

    @property
    def arguments(self) -> list[str]:
        """Global options of the command line."""
        return ["--log", self.log, "--namespace", self.namespace, "--state-dir", str(self.folder / "state")]

    def client(self) -> Client:
        """A client of it."""
        return Client(log=self.log, namespace=self.namespace, state_dir=self.folder / "state")


def submissions(kind: str, count: int, start: int = 0) -> Iterator[Submission]:
    """`noop`, `order` or `stock` jobs; an order's key is its resource, as its job type asks."""
    for number in range(start, start + count):
        if kind == "noop":
            yield Submission("noop", {"text": TEXT}, job_id=f"noop-{number}")
        else:
            payload = {"order_id": number, "customer": f"c{number % 1000}", "amount": "11.77"}
            yield Submission(kind, payload, key=f"order:{number}", job_id=f"order-{number}")


def fill(place: Place, kind: str, count: int, start: int = 0) -> float:
    """Submits in batches; returns jobs a second."""
    with place.client() as client:
        began = time.perf_counter()
        client.submit_many(submissions(kind, count, start))
        return count / (time.perf_counter() - began)


def submit_each(place: Place, kind: str, count: int) -> float:
    """Submits one by one, each durable before the next; returns jobs a second."""
    jobs = list(submissions(kind, count, start=10_000_000))
    with place.client() as client:
        began = time.perf_counter()
        for job in jobs:
            client.submit(job.type, job.payload, key=job.key, job_id=job.job_id)
        return count / (time.perf_counter() - began)
