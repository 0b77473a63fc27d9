"""Fixtures of all tests."""

from __future__ import annotations

import pytest
from tests.support import broker


def pytest_configure() -> None:
    broker.prepare()


def pytest_unconfigure() -> None:
    broker.end()


@pytest.fixture(scope="session")
def kafka_bootstrap() -> str:
    """`host:port` of a real Kafka; see `tests/support/broker.py`."""
    return broker.bootstrap()
