"""The embedded log's journal stays bounded under its own readers, and who else keeps it growing is named.

The guards: `log/sqlite/reading.py` and `database.py` (`read`: each read is a short transaction, so an export pins
nothing), `database.py` (`wal_autocheckpoint`, `journal_size_limit`; `_begin`: a write takes its lock at once and never
upgrades a read), `journal.py` (a foreign reader is told by name, by workers and by `doctor`). That a killed writer
loses nothing is in `tests/embedded/test_processes.py`.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.logs import read_all, record
from tests.support.payments import wait_until
from tests.support.workers import Running, event_counts, submit_work

from rewindq.engine.log.sqlite import SqliteLog, holder, journal
from rewindq.engine.ports.log import TopicSpec
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import load_settings
from rewindq.engine.runtime.verify import verify
from rewindq.tools.cli.examination import examine

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

MB = 1 << 20
READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM topics").fetchone()
print("reads", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("events", 1)])
    yield log
    log.close()


@pytest.fixture
def reader(log: SqliteLog) -> Iterator[subprocess.Popen[bytes]]:
    """A foreign process that keeps a read transaction open."""
    command = [sys.executable, "-c", READER, str(log.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"reads\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


def fill(log: SqliteLog, megabytes: int) -> int:
    """Appends what cannot be packed; the journal's largest size meanwhile."""
    most, producer = 0, log.producer()
    for _ in range(megabytes):
        producer.append([record("events", value=os.urandom(MB))])
        most = max(most, journal.size_of(log.path))
    return most


def test_an_export_that_stays_open_pins_nothing(log: SqliteLog) -> None:
    fill(log, 2)
    with closing(SqliteLog(log.path)) as other, closing(other.reader({("events", 0): 0})) as export:
        assert export.poll(1, 5)
        assert fill(log, 50) < 24 * MB
        assert export.poll(1, 5)


def test_a_foreign_reader_is_named_and_the_journal_shrinks_when_it_has_gone(
    log: SqliteLog, reader: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LIMIT", 20 * MB)
    with capture_logs() as told:
        assert fill(log, 70) > 65 * MB
    (warning,) = [line for line in told if line["log_level"] == "warning"]
    assert "over 20 MiB" in warning["reason"] and f"process {reader.pid} " in warning["reason"]
    settings = load_settings(log=f"sqlite:///{log.path}", state_dir=tmp_path / "state")
    (check,) = [check for check in examine(settings) if check.name == "journal"]
    assert not check.ok and f"process {reader.pid} " in check.detail
    reader.kill()
    reader.wait()
    assert holder.readers(log.path) == []
    fill(log, 2)
    assert journal.size_of(log.path) <= 64 * MB
    assert fill(log, 20) <= 64 * MB
    with closing(sqlite3.connect(log.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(read_all(log, "events")) == 92


def test_claimers_that_read_and_then_update_never_meet_a_lock(log: SqliteLog) -> None:
    failed: list[BaseException] = []

    def claim(number: int) -> None:
        try:
            with closing(SqliteLog(log.path)) as own:
                for _ in range(10):
                    offset = own.bounds("events", 0)[1]
                    own.set_offsets(f"g{number % 4}", {("events", 0): offset})
                    own.producer().append([record("events", value=str(number).encode())])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(read_all(log, "events")) == 160


def test_a_backup_of_a_busy_log_is_whole(tmp_path: Path) -> None:
    """Taken with SQLite's own means while a worker runs and is killed; every job of the original succeeds once."""
    settings = load_settings(log=f"sqlite:///{tmp_path}/log.db?lease_ttl=2", state_dir=tmp_path / "state", partitions=4)
    submit_work(settings, [0.05] * 40)
    workers = [Running(settings, tmp_path / "ledger", "--name", "w", "--concurrency", "2") for _ in range(2)]
    try:
        wait_until(lambda: event_counts(settings)["JobSucceeded"] >= 5, "some are done")
        with (
            closing(sqlite3.connect(tmp_path / "log.db")) as source,
            closing(sqlite3.connect(tmp_path / "b.db")) as copy,
        ):
            source.backup(copy, pages=20)
        workers[0].process.kill()
        wait_until(lambda: event_counts(settings)["JobSucceeded"] == 40, "all are done")
        workers[1].stop()
        assert not any("locked" in line for worker in workers for line in worker.told)
    finally:
        for worker in workers:
            worker.kill()
    restored = load_settings(log=f"sqlite:///{tmp_path}/b.db", state_dir=tmp_path / "restored", partitions=4)
    for place in (settings, restored):
        with Deployment.open(place) as deployment:
            checked = verify(deployment)
        assert checked["ok"], checked["violations"]
    again = Running(restored, tmp_path / "ledger", "--until-idle")
    try:
        again.end()
    finally:
        again.kill()
    assert event_counts(restored)["JobSucceeded"] == 40
