"""Folding, rebuilding and forking: how fast the past opens."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.ports.store import Family, Put
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.recover import PartitionTopics, Tail
from rewindq.engine.runtime.settings import load_settings
from rewindq.engine.store.opener import open_store

from .load import Place
from .measure import disk_bytes


def rebuild(place: Place) -> tuple[int, float]:
    """Folds all partitions of a log into new stores: events, and events a second (on one core: one thread)."""
    settings = load_settings(log=place.log, namespace=place.namespace, state_dir=place.folder / "state")
    folder = place.folder / "rebuilt"
    events = 0
    with Deployment.open(settings) as deployment:
        began = time.perf_counter()
        for partition in range(deployment.partitions):
            store = open_store(str(folder / f"p{partition}"), branch="", partition=partition)
            source = PartitionTopics(deployment.topics.lifecycle, deployment.topics.domain, partition)
            events += Tail(deployment.log, deployment.codec, source, store).catch_up()
            store.close()
        took = time.perf_counter() - began
    shutil.rmtree(folder)
    return events, events / took


def fork(folder: Path, aggregates: int, forks: int = 15) -> tuple[list[float], list[int]]:
    """Milliseconds and bytes of new branches over a store with so many aggregates."""
    base = open_store(str(folder / "base"), branch="", partition=0)
    batch: list[Put] = []
    for number in range(aggregates):
        changes = values.encode({"balance": number, "name": f"customer {number}"})
        stored = s.AggregateVersion(1, None, number, f"job-{number}", "save", None, changes)
        batch.append(Put(Family.AGGREGATES, f"customer:{number}".encode(), s.encode_state(stored), number))
        if len(batch) == 10_000:
            base.write(batch)
            batch = []
    base.write(batch)
    took, added = [], []
    for number in range(forks):
        place = folder / f"branch-{number}"
        began = time.perf_counter()
        branch = base.branch(str(place), aggregates // 2)
        took.append(1000 * (time.perf_counter() - began))
        branch.write([Put(Family.AGGREGATES, b"customer:1", s.encode_state(stored), aggregates + 1)])
        assert branch.latest(Family.AGGREGATES, b"customer:0") is not None
        branch.close()
        added.append(disk_bytes(place))
    base.close()
    return took, added
