"""A worker does not start where effects' keys would go before what may ask for them again; `doctor` tells the same.

The guard is `runtime/keeping.py`: `check_keeping` at a worker's start (`processors/worker/daemon.py`, and once for
several processes in `tools/cli/worker.py`). What protects on the embedded log, which keeps all submissions, is tested
in `tests/cases/test_keys_expire.py`: a known job id runs nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.payments import ROOT

from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.ports.log import LogError, TopicSpec
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.keeping import look_at_keeping
from rewindq.engine.runtime.settings import Settings, SettingsError, load_settings

pytestmark = pytest.mark.timeout(120)
DAY_MS = 86_400_000


def command(folder: Path, log: str, namespace: str, keep: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = {"LOG": log, "NAMESPACE": namespace, "STATE_DIR": str(folder / "state"), "KEEP_KEYS": keep}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **{f"REWINDQ_{k}": v for k, v in given.items() if v}}
    program = [sys.executable, "-m", "rewindq.tools.cli", *arguments, "--json"]
    return subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def keys_check(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (found,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "effects' keys"]
    return dict(found)


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.parametrize("retention_ms", [7 * DAY_MS, None])
def test_keys_that_go_before_the_inputs_are_refused(
    kafka_bootstrap: str, tmp_path: Path, retention_ms: int | None
) -> None:
    log, namespace = f"kafka://{kafka_bootstrap}", f"keep-{uuid.uuid4().hex[:8]}"
    with Deployment(load_settings(log=log, namespace=namespace), handle := open_kafka(log), None, None, None) as place:  # type: ignore[arg-type]
        handle.create_topics(
            [TopicSpec(place.topics.jobs, 1, 7 * DAY_MS), TopicSpec(place.topics.commands, 1, retention_ms)]
        )
    run = ("worker", "--app", "tests.support.slow_app:app", "--until-idle")
    refused = command(tmp_path, log, namespace, "6d", *run, *(() if retention_ms else ("--processes", "2")))
    assert refused.returncode == 2, refused
    assert "keep_keys is 6 d" in refused.stdout and "retention.ms" in refused.stdout
    if retention_ms is None:
        return
    told = keys_check(command(tmp_path, log, namespace, "6d", "doctor"))
    assert (told["ok"], "retention.ms" in told["detail"]) == (False, True)
    allowed = command(tmp_path, log, namespace, "7d", *run)
    assert allowed.returncode == 0, allowed


class _Silent:
    """A broker that does not tell a topic's settings."""

    def retention_ms(self, topic: str) -> int | None:
        raise LogError("TOPIC_AUTHORIZATION_FAILED")


def test_where_nobody_can_tell_it_is_a_warning() -> None:
    settings = load_settings(log="kafka://nowhere:1", keep_keys="1h")
    found = look_at_keeping(Deployment(settings, _Silent(), None, None, None))  # type: ignore[arg-type]
    assert found.ok is None
    assert "TOPIC_AUTHORIZATION_FAILED" in found.told and "rewindq.jobs" in found.told


def test_the_embedded_log_says_what_protects_there(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/log.db"
    run = ("worker", "--app", "tests.support.slow_app:app", "--until-idle", "--processes", "2", "--keep-keys", "1h")
    done = command(tmp_path, log, "rewindq", "", *run)
    assert done.returncode == 0, done
    assert "answers are dropped 3600 s after" in done.stderr
    told = keys_check(command(tmp_path, log, "rewindq", "90m", "doctor"))
    assert told["ok"] and "answers are dropped 5400 s after" in told["detail"]
    assert "job ids are known for ever" in told["detail"]


@pytest.mark.parametrize("keep", ["0", "-1h", "soon", True, float("nan"), "11y"])
def test_what_is_no_duration_is_refused(keep: object) -> None:
    with pytest.raises(SettingsError, match="keep_keys"):
        load_settings(keep_keys=keep)


def test_durations_are_texts_or_seconds() -> None:
    given: list[tuple[object, float]] = [("7d", 604_800.0), ("1h30m", 5400.0), (90, 90.0), ("90.5", 90.5)]
    assert [load_settings(keep_keys=keep).keep_keys for keep, _ in given] == [seconds for _, seconds in given]
    assert Settings().keep_keys is None
