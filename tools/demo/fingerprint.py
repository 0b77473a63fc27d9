"""A digest of all that production has: its topics' records, its group's offsets, and the services' ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from rewindq.engine.ports.log import Log, Record
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

from .services import GATEWAY, WAREHOUSE, ledger_path


def fingerprint(folder: Path, settings: Settings) -> str:
    """The same before and after what changed nothing of production. `folder` has the ledgers. Raises LogUnavailable."""
    found = sha256()
    for service in (GATEWAY, WAREHOUSE):
        found.update(ledger_path(folder, service).read_bytes())
    with Deployment.open(settings) as deployment:
        topics = deployment.topics
        names = (topics.jobs, topics.commands, topics.lifecycle, topics.domain, topics.investigation, topics.snapshots)
        for name in names:
            for partition in range(deployment.partitions):
                for record in _records(deployment.log, name, partition):
                    found.update(repr(record).encode())
        for group in deployment.log.groups(topics.worker_group):
            found.update(repr((group.name, sorted(group.offsets.items()))).encode())
    return found.hexdigest()


def _records(log: Log, topic: str, partition: int) -> Iterator[Record]:
    low, end = log.bounds(topic, partition)
    reader = log.reader({(topic, partition): low})
    try:
        while reader.position(topic, partition) < end:
            yield from reader.poll(1000, 1.0)
    finally:
        reader.close()
