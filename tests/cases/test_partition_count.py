"""A namespace keeps the partition count that it was made with: other counts are refused before anything is done.

The guards: `pinned`, `pin` and `check` (`runtime/pinned.py`), asked by `Deployment.partitions` and `ensure_topics`;
the logs' own comparison of counts (`tests/contract/log/test_topics.py`) where only some topics were changed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import state as s
from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.ports.log import PartitionCountMismatch
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.pinned import pin, pinned

BEFORE, AFTER, KEYS = 2, 4, 12


class Item(BaseModel):
    """A small payload."""

    n: int


def _app() -> App:
    app = App("t")

    @app.job(key="item:{n}")
    async def count(ctx: Context, job: Item) -> None:
        item = await ctx.load("item", job.n)
        await ctx.save("item", job.n, {"count": item.get("count", 0) + 1}, expected=item.version)

    return app


class Cluster:
    """A real Kafka on which topics are changed from outside."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._url = f"kafka://{bootstrap}?session_timeout_ms=2000&transaction_timeout_ms=4000"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._folder = folder
        self.namespace = f"count-{uuid.uuid4().hex[:8]}"
        self.shops: list[Shop] = []

    def shop(self, partitions: int = BEFORE) -> Shop:
        shop = Shop(self._folder, _app(), log=open_kafka(self._url), namespace=self.namespace, partitions=partitions)
        self.shops.append(shop)
        return shop

    def grow(self, *words: str) -> None:
        """Gives topics more partitions, as an administrator would."""
        grown = [NewPartitions(f"{self.namespace}.{word}", AFTER) for word in words]
        for future in self._admin.create_partitions(grown).values():
            future.result(20)


@pytest.fixture
def cluster(kafka_bootstrap: str, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(kafka_bootstrap, tmp_path)
    yield found
    for shop in found.shops:
        shop.deployment.close()


def _counts(shop: Shop) -> list[Any]:
    tails = shop.fold()
    return [[t.states.aggregate(f"item:{n}").data for t in tails] for n in range(KEYS)]


@pytest.mark.kafka
def test_grown_topics_are_refused_with_both_counts_and_a_running_worker_keeps_its_own(cluster: Cluster) -> None:
    """Grown under a running worker: it goes on with what it knows, and nobody new comes in."""
    shop = cluster.shop()
    for n in range(KEYS):
        shop.submit("count", {"n": n}, f"a{n}", key=f"item:{n}")
    shop.run()
    before = _counts(shop)

    async def grow(worker: Any) -> None:
        while worker.report.owned < BEFORE:
            await asyncio.sleep(0.01)
        words = ("jobs", "commands", "lifecycle", "domain", "investigation", "snapshots")
        await asyncio.to_thread(cluster.grow, *words)
        for n in range(KEYS):
            await asyncio.to_thread(shop.submit, "count", {"n": n}, f"b{n}", key=f"item:{n}")

    shop.run(until=lambda report: report.succeeded >= KEYS, during=grow)
    after = _counts(shop)
    assert [[data and {"count": data["count"] + 1} for data in item] for item in before] == after
    assert {shop.job(f"b{n}").status for n in range(KEYS)} == {s.SUCCEEDED}

    for partitions in (BEFORE, AFTER):
        with pytest.raises(PartitionCountMismatch, match=f"made with {BEFORE} partitions.* has {AFTER} now"):
            cluster.shop(partitions)
    log = open_kafka(cluster._url)
    other = Client(deployment=type(shop.deployment)(shop.deployment.settings, log, *_parts(shop)))
    with pytest.raises(PartitionCountMismatch, match=str(BEFORE)):
        other.submit("count", {"n": 1})
    with pytest.raises(PartitionCountMismatch, match=str(AFTER)):
        other.status("a1")
    other.deployment.close()
    assert _counts(shop) == after


def _parts(shop: Shop) -> tuple[Any, ...]:
    return shop.deployment.codec, shop.deployment.blobs, shop.deployment.clock


@pytest.mark.kafka
@pytest.mark.parametrize("word", ["domain", "jobs"])
def test_one_topic_with_another_count_is_refused_by_name(cluster: Cluster, word: str) -> None:
    shop = cluster.shop()
    shop.submit("count", {"n": 1}, "a", key="item:1")
    cluster.grow(word)
    with pytest.raises(PartitionCountMismatch, match=rf"{word} has {AFTER}") as refused:
        cluster.shop()
    assert str(BEFORE) in str(refused.value)


def test_the_count_is_kept_once_and_a_setting_does_not_change_it(tmp_path: Path) -> None:
    state = MemoryState()
    for partitions in (3, 5):
        shop = Shop(tmp_path, _app(), log=MemoryLog(state), partitions=partitions)
        assert (shop.deployment.partitions, pinned(shop.deployment.log, shop.topics)) == (3, 3)
    assert shop.deployment.log.bounds(shop.topics.snapshots, 0)[1] == 1
    pin(shop.deployment.log, shop.topics, 7, 0)
    with pytest.raises(PartitionCountMismatch, match="made with 7 partitions"):
        Shop(tmp_path, _app(), log=MemoryLog(state))
