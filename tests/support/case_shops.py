"""A `Shop` on each log: the embedded one and a real Kafka, with a namespace of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.shop import Shop

from rewindq import App
from rewindq.engine.log.kafka import open_kafka

MakeShop = Callable[..., Shop]


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeShop]:
    """Makes a shop: `make_shop(app, partitions=1)`. All are closed at the end.

    `Deployment.open(shop.deployment.settings)` is another handle on it.
    """
    made: list[Shop] = []

    def make(app: App, **settings: Any) -> Shop:
        folder = tmp_path / f"shop-{len(made)}"
        given = {"namespace": f"case-{uuid.uuid4().hex[:8]}", **settings}
        if request.param == "embedded":
            made.append(Shop(folder, app, **given))
            return made[-1]
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        url = f"kafka://{bootstrap}?session_timeout_ms=2000&transaction_timeout_ms=4000"
        shop = Shop(folder, app, log=open_kafka(url), **given)
        known = shop.deployment.settings.model_copy(update={"log": url, "blobs": folder / "blobs"})
        shop.deployment.settings = known
        made.append(shop)
        return shop

    yield make
    for shop in made:
        shop.deployment.close()
