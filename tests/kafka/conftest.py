from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.kafka import Space


@pytest.fixture
def space(kafka_bootstrap: str) -> Iterator[Space]:
    made = Space(kafka_bootstrap)
    yield made
    made.close()
