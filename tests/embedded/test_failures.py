"""What happens to an append or commit when the disk is full, the file is locked, or COMMIT itself fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.logs import join, read_all, record, turn

from rewindq.engine.log.sqlite import SqliteLog, groups, process
from rewindq.engine.ports.log import AppendRefused, LogUnavailable, OutcomeUnknown, TopicSpec


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db", busy_timeout=0.2)
    log.create_topics([TopicSpec("jobs", 1), TopicSpec("events", 2)])
    yield log
    log.close()


class Breaking:
    """A connection whose COMMIT fails, before or after it took place, and perhaps its ROLLBACK too."""

    def __init__(self, connection: sqlite3.Connection, code: int, *, rollback: bool = True) -> None:
        self._connection = connection
        self._code = code
        self._rollback = rollback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement == "COMMIT" or (statement == "ROLLBACK" and not self._rollback):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *parameters)


def _break(log: SqliteLog, code: int, *, rollback: bool = True) -> sqlite3.Connection:
    connection = log._database._writer
    log._database._writer = Breaking(connection, code, rollback=rollback)  # type: ignore[assignment]
    return connection


def test_a_full_disk_refuses_the_append_and_leaves_nothing(log: SqliteLog) -> None:
    producer = log.producer()
    producer.append([record("events", 0, b"before")])
    (pages,) = log._database._writer.execute("PRAGMA page_count").fetchone()
    log._database._writer.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(AppendRefused, match=r"full.*free disk space"):
        producer.append([record("events", 1, b"small"), record("events", 0, os.urandom(50_000))])
    assert read_all(log, "events", 1) == []
    log._database._writer.execute("PRAGMA max_page_count=1000000")
    producer.append([record("events", 0, b"after")])
    assert [one.value for one in read_all(log, "events", 0)] == [b"before", b"after"]


def test_a_full_disk_refuses_a_turn_and_leaves_nothing(log: SqliteLog) -> None:
    worker = join(log, "g", ["jobs"])
    worker.poll()
    (pages,) = log._database._writer.execute("PRAGMA page_count").fetchone()
    log._database._writer.execute(f"PRAGMA max_page_count={pages + 2}")
    big = os.urandom(50_000)
    with pytest.raises(AppendRefused, match="full"):
        worker.member.commit(turn([record("events", 0, b"small"), record("events", 1, big)], {("jobs", 0): 1}, 0))
    assert read_all(log, "events", 0) == [] and log.groups("g")[0].offsets == {}
    log._database._writer.execute("PRAGMA max_page_count=1000000")
    worker.member.commit(turn([record("events", 1, big)], {("jobs", 0): 1}, 0))


def test_a_lock_held_by_another_process_is_a_refusal_in_the_ports_words(log: SqliteLog) -> None:
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(AppendRefused, match=r"locked.*nothing was done"):
        log.producer().append([record("events")])
    with pytest.raises(LogUnavailable, match="locked"):
        log.create_topics([TopicSpec("more", 1)])
    assert log.bounds("events", 0) == (0, 0)  # readers do not wait for writers
    other.close()
    log.producer().append([record("events")])


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY])
def test_a_failed_commit_that_was_rolled_back_is_refused(log: SqliteLog, code: int) -> None:
    whole = _break(log, code)
    with pytest.raises(AppendRefused):
        log.producer().append([record("events")])
    log._database._writer = whole
    log.producer().append([record("events", 0, b"next")])
    assert [one.value for one in read_all(log, "events")] == [b"next"]


def test_a_failed_sync_leaves_the_outcome_unknown(log: SqliteLog) -> None:
    whole = _break(log, sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(OutcomeUnknown, match="read the log's end"):
        log.producer().append([record("events")])
    log._database._writer = whole


def test_a_commit_that_can_not_even_be_rolled_back_is_unknown_and_the_log_goes_on(log: SqliteLog) -> None:
    _break(log, sqlite3.SQLITE_IOERR_WRITE, rollback=False)
    with pytest.raises(OutcomeUnknown, match="read the log's end"):
        log.producer().append([record("events", 0, b"lost")])
    log.producer().append([record("events", 0, b"next")])
    assert [one.value for one in read_all(log, "events")] == [b"next"]


def test_an_error_in_the_middle_of_a_transaction_rolls_it_back(log: SqliteLog) -> None:
    with pytest.raises(AppendRefused, match="never"):
        log.producer().append([record("events"), record("never")])
    assert not log._database._writer.in_transaction
    assert log.bounds("events", 0) == (0, 0)


def test_a_member_that_cannot_renew_in_time_is_told_that_it_lost_all(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", busy_timeout=0.05, lease_ttl=0.3)
    log.create_topics([TopicSpec("jobs", 2)])
    worker = join(log, "g", ["jobs"])
    worker.poll()
    assert worker.owner.owned == {0, 1}
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogUnavailable, match="locked"):
        while True:
            worker.poll()
    assert worker.owner.told[-1] == ("lost", [0, 1])
    other.close()
    while worker.owner.owned != {0, 1}:
        worker.poll()
    worker.member.commit(turn([], {("jobs", 0): 1}, 0))
    log.close()


def test_a_member_that_was_taken_for_dead_is_told_and_enters_again(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("jobs", 2)])
    worker = join(log, "g", ["jobs"])
    worker.poll()
    with log._database.write() as connection:
        groups.remove(connection, 1, worker.member.member_id)
    assert log.groups("g")[0].members == ()
    worker.poll()
    assert worker.owner.told[1:] == [("lost", [0, 1]), ("assigned", [0, 1])]
    assert log.groups("g")[0].members == (worker.member.member_id,)
    log.close()


def test_a_member_is_renewed_without_polling(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", lease_ttl=0.3)
    log.create_topics([TopicSpec("jobs", 1)])
    seat = join(log, "g", ["jobs"]).member._seat  # type: ignore[attr-defined]
    first = seat._renewed_until
    reader = log.reader({("jobs", 0): 0})
    while process.now() < first + 0.1:
        reader.poll(timeout=0.02)
    assert not seat.expired() and len(log.groups("g")[0].members) == 1
    log.close()


def test_closing_a_log_makes_its_members_leave(tmp_path: Path) -> None:
    log, other = SqliteLog(tmp_path / "log.db"), SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("jobs", 1)])
    join(log, "g", ["jobs"]).poll()
    assert len(other.groups("g")[0].members) == 1
    log.close()
    assert other.groups("g")[0].members == ()
    other.close()


def test_a_deleted_topics_records_go_even_if_the_deleting_process_was_stopped(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("jobs", 1), TopicSpec("other", 1)])
    for _ in range(5):
        log.producer().append([record("jobs")])
    with log._database.write() as connection:
        log._topics._unlink(connection, "jobs")
    assert log.topics() == {"other": 1}
    log.delete_topics([])
    with log._database.read() as connection:
        assert connection.execute("SELECT count(*) FROM batches").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM dropped").fetchone() == (0,)
    log.close()


def test_trimming_gives_the_rows_back(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.create_topics([TopicSpec("jobs", 1, retention_ms=10)])
    for at in range(520):
        log.producer().append([record("jobs", at=at)])
    log.trim(520)
    assert log.bounds("jobs", 0) == (510, 520)
    with log._database.read() as connection:
        assert connection.execute("SELECT count(*) FROM batches").fetchone() == (10,)
    log.close()
    again = SqliteLog(tmp_path / "log.db")
    assert len(read_all(again, "jobs")) == 10
    again.close()
