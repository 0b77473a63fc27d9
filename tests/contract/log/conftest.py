from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.logs import IMPLEMENTATIONS, LogKit

from rewindq.engine.ports.log import Log


@pytest.fixture(params=IMPLEMENTATIONS)
def log_factory(request: pytest.FixtureRequest) -> Iterator[LogKit]:
    """A fresh log (or fresh names on a shared one) of each implementation."""
    kit: LogKit = request.param(request)
    yield kit
    kit.close()


@pytest.fixture
def kit(log_factory: LogKit) -> LogKit:
    return log_factory


@pytest.fixture
def log(log_factory: LogKit) -> Log:
    return log_factory.log()
