"""A process that is frozen in the middle of a write keeps the log's lock: whoever waits for it is told who it is."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.logs import record
from tests.support.payments import wait_until

from rewindq.engine.log.sqlite import SqliteLog, database, holder
from rewindq.engine.ports.log import AppendRefused, TopicSpec
from rewindq.engine.runtime.settings import load_settings
from rewindq.tools.cli.examination import examine

pytestmark = pytest.mark.process

PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db", busy_timeout=0.4)
    log.create_topics([TopicSpec("events", 1)])
    yield log
    log.close()


@pytest.fixture
def writer(log: SqliteLog) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROGRAM, str(log.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"holds\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


def _freeze(log: SqliteLog, writer: subprocess.Popen[bytes]) -> None:
    writer.send_signal(signal.SIGSTOP)
    wait_until(lambda: getattr(holder.find(log.path), "stopped", False), "it is stopped", 10)


def test_nobody_holds_a_lock_that_is_free(log: SqliteLog) -> None:
    log.producer().append([record("events")])
    assert holder.find(log.path) is None


def test_the_holder_is_named_with_what_it_runs(log: SqliteLog, writer: subprocess.Popen[bytes]) -> None:
    found = holder.find(log.path)
    assert found is not None and (found.pid, found.stopped) == (writer.pid, False)
    assert "python" in found.command and "kill" not in str(found)


def test_who_waits_warns_once_and_is_refused_with_the_name(
    log: SqliteLog, writer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_WARN_AFTER_S", 0.1)
    _freeze(log, writer)
    with capture_logs() as told, pytest.raises(AppendRefused, match=rf"nothing was done.*kill -CONT {writer.pid}"):
        log.producer().append([record("events")])
    (line,) = told
    assert line["log_level"] == "warning" and f"process {writer.pid} " in line["holder"]
    assert 0.1 <= line["for_s"] < 1


def test_nobody_warns_of_a_short_wait(log: SqliteLog, writer: subprocess.Popen[bytes]) -> None:
    with capture_logs() as told, pytest.raises(AppendRefused):
        log.producer().append([record("events")])
    assert told == []


def test_the_doctor_names_it(log: SqliteLog, writer: subprocess.Popen[bytes], tmp_path: Path) -> None:
    settings = load_settings(log=log.url, state_dir=tmp_path / "state")
    _freeze(log, writer)
    (check,) = [check for check in examine(settings) if check.name == "write lock"]
    assert not check.ok and f"kill -CONT {writer.pid}" in check.detail
    writer.kill()
    writer.wait()
    (check,) = [check for check in examine(settings) if check.name == "write lock"]
    assert check.ok
