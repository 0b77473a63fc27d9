"""`--instance-id` on the command line: one id a process, and none where membership is not Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import Shell
from tests.support.slow_app import calls
from tests.support.workers import Running, submit_work

from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def test_each_process_has_an_id_of_its_own(settings: Settings, tmp_path: Path) -> None:
    if not settings.log.startswith("kafka:"):
        refused = Shell(tmp_path).run_inside("worker", "--app", "tests.support.apps:app", "--instance-id", "x")
        assert refused.code == 2 and "is for Kafka" in refused.err
        return
    submit_work(settings, [0.1] * 12)
    worker = Running(settings, tmp_path / "ledger", "--processes", "2", "--instance-id", "w", "--until-idle")
    try:
        assert worker.end().items() >= {"processed": 12, "succeeded": 12}.items()
    finally:
        worker.kill()
    assert worker.process.returncode == 0 and len(calls(tmp_path / "ledger")) == 12
    assert worker.complaints == []
