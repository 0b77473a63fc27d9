"""Leaving a group while the client library is at its end already."""

from __future__ import annotations

import pytest
from tests.support.kafka import Told, poll_until
from tests.support.kafka_mock import MockCluster

from rewindq.engine.log.kafka import member, open_kafka


def test_a_closing_member_needs_no_group_metadata(
    kafka_mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last callback comes while the library may have none any more, and says so by an error."""
    kafka_mock_cluster.create_topic("closing.jobs", 2)
    log, told = open_kafka(f"kafka://{kafka_mock_cluster.bootstrap}"), Told()
    joined = log.join("closing.worker", ["closing.jobs"], told, name="w")
    poll_until(lambda: told.owned == {0, 1}, joined)

    def none_any_more(_consumer: object) -> bytes:
        raise RuntimeError("Consumer group metadata not available")

    monkeypatch.setattr(member, "raw_metadata", none_any_more)
    joined.close()
    assert [what for what, _ in told.calls] == ["assigned"]
