"""Workers that are started at once on a fresh folder share it, and none of them complains."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.payments import wait_until
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def test_workers_started_at_once_make_each_store_once(settings: Settings, tmp_path: Path) -> None:
    many = [("--processes", "2"), (), ()]
    workers = [Running(settings, tmp_path / "ledger", "--name", "same", *more) for more in many]
    try:
        for worker in workers:
            worker.await_line("partition taken")
        submit_work(settings, [0.0] * 12)
        wait_until(lambda: event_counts(settings)["JobSucceeded"] == 12, "all is done")
        ended = [worker.stop() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert sum(summary["succeeded"] for summary in ended) == len(calls(tmp_path / "ledger")) == 12
    assert [worker.process.returncode for worker in workers] == [0] * 3
    assert [worker.complaints for worker in workers] == [[]] * 3
    with Deployment.open(settings) as deployment:
        for partition in range(deployment.partitions):
            assert [found.name for found in deployment.partition_folder(partition).iterdir()] == ["g1"]
