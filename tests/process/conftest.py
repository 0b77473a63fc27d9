"""A fresh namespace on each log, for tests with real processes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from rewindq.engine.runtime.settings import Settings, load_settings


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings whose time-outs are short, so that a takeover does not take the test's time."""
    if request.param == "embedded":
        log = f"sqlite:///{tmp_path}/log.db?lease_ttl=2"
    else:
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        log = f"kafka://{bootstrap}?session_timeout_ms=2000&transaction_timeout_ms=4000"
    namespace = f"process-{uuid.uuid4().hex[:8]}"
    return load_settings(log=log, namespace=namespace, state_dir=tmp_path / "state", partitions=4)
