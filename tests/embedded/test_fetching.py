"""Delivery of the local logs: fair between partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.logs import record

from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import Log, TopicSpec


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_partition_is_starved_by_a_busy_one(tmp_path: Path, kind: str) -> None:
    log: Log = MemoryLog() if kind == "memory" else SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("jobs", 2)])
    producer = log.producer()
    producer.append([record("jobs", 0, b"busy") for _ in range(3000)])
    producer.append([record("jobs", 1, b"calm")])
    reader = log.reader({("jobs", 0): 0, ("jobs", 1): 0})
    seen = [one for _ in range(3) for one in reader.poll(limit=100)]
    assert b"calm" in {one.value for one in seen}
    log.close()
