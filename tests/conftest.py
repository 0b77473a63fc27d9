"""Fixtures of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import structlog
from tests.support import broker
from tests.support.kafka_mock import MockCluster


def pytest_configure() -> None:
    # A shell starts its background programs with Ctrl-C ignored, and whatever they start inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    broker.prepare()


def pytest_unconfigure() -> None:
    broker.end()


@pytest.fixture(scope="session")
def kafka_bootstrap() -> str:
    """`host:port` of a real Kafka; see `tests/support/broker.py`."""
    return broker.bootstrap()


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Each test logs to its own captured output: a command run in this process sets a stream that is closed later."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def kafka_mock_cluster() -> Iterator[MockCluster]:
    """A Kafka inside of this process, with what librdkafka's mock cluster can do."""
    cluster = MockCluster()
    yield cluster
    cluster.close()
