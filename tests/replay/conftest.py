"""A namespace on an embedded log where the shop's orders have run for real."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.recorded import submit

from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import load_settings
from rewindq.processors.worker.report import WorkerOptions
from rewindq.processors.worker.worker import Worker

SHOP = "tests.support.replay_shop:app"
FIXED = "tests.support.replay_shop_fixed:app"


class Shop:
    """The namespace, and what must not change in it."""

    def __init__(self, deployment: Deployment, ledger: Path) -> None:
        self.deployment = deployment
        self.ledger = ledger

    def order(self, number: int, **fields: Any) -> str:
        """Submits an order of the one customer."""
        payload = {"order_id": f"o{number}", "customer": "c1", "amount": 10 * number, **fields}
        submit(self.deployment, "order", payload, f"job-{number}", "customer:c1")
        return f"job-{number}"

    def work(self) -> None:
        """Runs the real worker until nothing is left to do."""

        async def go() -> None:
            worker = Worker(self.deployment, load_app(SHOP), WorkerOptions(grace=1.0, concurrency=1))
            async with asyncio.timeout(60):
                await worker.run(lambda report: report.idle)

        asyncio.run(go())

    def production(self) -> dict[str, Any]:
        """Every byte of production: records, groups and stores, and the gateway's ledger."""
        place = self.deployment
        own = (place.topics.branches, f"{place.settings.namespace}.branch.")
        mine = f"{place.settings.namespace}."
        names = [name for name in place.log.topics(mine) if not name.startswith(own)]
        groups = [group for group in place.log.groups(mine) if not group.name.startswith(own)]
        stores = Path(place.settings.state_dir) / place.settings.namespace / "main"
        files = {str(path): path.read_bytes() for path in sorted(stores.rglob("*")) if path.is_file()}
        return {
            "topics": {name: self._dump(name) for name in sorted(names)},
            "groups": groups,
            "stores": {path: hashlib.sha256(data).hexdigest() for path, data in files.items()},
            "ledger": self.ledger.read_bytes(),
        }

    def _dump(self, topic: str) -> list[Any]:
        found: list[Any] = []
        for partition in range(self.deployment.log.topics(topic)[topic]):
            low, end = self.deployment.log.bounds(topic, partition)
            reader = self.deployment.log.reader({(topic, partition): low})
            while reader.position(topic, partition) < end:
                found.extend(reader.poll(1000, 1.0))
            reader.close()
        return found


def _opened(log: str, folder: Path, monkeypatch: pytest.MonkeyPatch, namespace: str = "shop") -> Iterator[Shop]:
    """Three orders of one customer, run live."""
    ledger = folder / "ledger"
    monkeypatch.setenv("REPLAY_LEDGER", str(ledger))
    settings = load_settings(log=log, namespace=namespace, state_dir=folder / "state", partitions=2)
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        found = Shop(deployment, ledger)
        for number in (1, 2, 3):
            found.order(number)
        found.work()
        assert len(ledger.read_text().splitlines()) == 3
        yield found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The shop on the embedded log."""
    yield from _opened(f"sqlite:///{tmp_path}/log.db", tmp_path, monkeypatch)


@pytest.fixture
def kafka_shop(kafka_bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The shop on a real Kafka."""
    yield from _opened(f"kafka://{kafka_bootstrap}", tmp_path, monkeypatch, f"shop-{uuid.uuid4().hex[:8]}")
