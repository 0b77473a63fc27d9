"""Payments of a few accounts through real worker processes: submitted, worked on, and counted on all sides."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.ports.log import Append
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.recover import PartitionTopics, Tail
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.store.newest import NOT_CONTENT
from rewindq.engine.store.opener import open_store

JOBS = 60
ACCOUNTS = 7
ROOT = Path(__file__).parents[2]


def submit(settings: Settings) -> None:
    """Payments of a few accounts, straight onto the jobs topic."""
    accounts = [f"a{number % ACCOUNTS}" for number in range(JOBS)]
    payloads = [{"payment_id": f"p{n}", "account": account, "amount": n} for n, account in enumerate(accounts)]
    append_jobs(settings, "payment", payloads, [f"account:{account}" for account in accounts])


def append_jobs(settings: Settings, job_type: str, payloads: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
    """Jobs of a type with ids `job-0`, `job-1`, …, straight onto the jobs topic, each at its key's home."""
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        appends = []
        for number, (given, name) in enumerate(zip(payloads, keys, strict=True)):
            payload, key = values.encode(dict(given)), name.encode()
            body = e.JobSubmitted(job_type, payload, None, values.digest(payload))
            record = e.EventRecord(e.UNNUMBERED, 0, 1, 0, "test", f"job-{number}", 0, (e.Event(body),))
            place = partition_for(key, deployment.partitions)
            value = deployment.codec.encode(record)
            appends.append(Append(deployment.topics.jobs, place, key, value, time.time_ns() // 10**6))
        producer = deployment.log.producer()
        producer.append(appends)
        producer.close()


def worker(settings: Settings, ledger: Path, point: str, turn: int) -> subprocess.Popen[bytes]:
    """Starts a worker that dies at a point of its n-th turn."""
    command = [sys.executable, "-m", "tests.support.crashing_worker"]
    arguments = [settings.log, settings.namespace, str(settings.state_dir), point, str(turn)]
    return subprocess.Popen([*command, *arguments], cwd=ROOT, env={**os.environ, "LEDGER": str(ledger)})


def accounts(settings: Settings) -> Iterator[tuple[str, int]]:
    """Every account's total, from the stores, each held against a rebuild from nothing."""
    with Deployment.open(settings) as deployment:
        topics = deployment.topics
        for partition in range(deployment.partitions):
            live = open_store(str(deployment.store_path(partition)), branch="", partition=partition)
            fresh = open_store(str(settings.state_dir / f"fresh-{partition}"), branch="", partition=partition)
            source = PartitionTopics(topics.lifecycle, topics.domain, partition)
            tail = Tail(deployment.log, deployment.codec, source, fresh)
            tail.catch_up()
            assert live.digest(skip=NOT_CONTENT) == fresh.digest(skip=NOT_CONTENT)
            for key in live.keys(Family.AGGREGATES):
                yield key.decode(), tail.states.aggregate(key.decode()).data["total"]
            for raw in live.keys(Family.JOBS):
                job = tail.states.job(raw.decode())
                assert job is not None
                assert job.status == s.SUCCEEDED, (raw, job)
            live.close()
            fresh.close()


def check_totals(settings: Settings, ledger: Path) -> None:
    """Each payment once in the ledger, each account the sum of its payments, each job succeeded."""
    calls = Counter(line.split(" ")[1] for line in ledger.read_text().splitlines())
    assert calls == {f"p{number}": 1 for number in range(JOBS)}
    expected = {f"account:a{account}": sum(range(account, JOBS, ACCOUNTS)) for account in range(ACCOUNTS)}
    assert dict(accounts(settings)) == expected


def owns_something(settings: Settings) -> bool:
    """Whether a writer's fence stands on the lifecycle topic."""
    with Deployment.open(settings) as deployment:
        names = deployment.log.topics(deployment.topics.lifecycle)
        if deployment.topics.lifecycle not in names:
            return False
        ends = [deployment.log.bounds(deployment.topics.lifecycle, p)[1] for p in range(deployment.partitions)]
        return all(end > 0 for end in ends)


def log_dump(settings: Settings) -> list[tuple[str, int, int, bytes | None]]:
    """Every record of the event topics."""
    with Deployment.open(settings) as deployment:
        places = [
            (topic, partition)
            for topic in (deployment.topics.lifecycle, deployment.topics.domain)
            for partition in range(deployment.partitions)
        ]
        ends = {place: deployment.log.bounds(*place)[1] for place in places}
        reader = deployment.log.reader(dict.fromkeys(places, 0))
        found = []
        while any(reader.position(*place) < ends[place] for place in places):
            found += [(r.topic, r.partition, r.offset, r.value) for r in reader.poll(1000, 1.0)]
        reader.close()
        return sorted(found, key=lambda item: item[:3])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60, every: float = 0.1) -> None:
    """Waits by condition, asked `every` so many seconds."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        pause.wait(every)
