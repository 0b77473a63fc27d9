"""Where an embedded log may lie, what is refused untouched, and what happens to its file while it is open."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.support.logs import read_all, record

from rewindq.engine.log.sqlite import SqliteLog, files, schema
from rewindq.engine.ports.log import AppendRefused, LogError, LogUnavailable, TopicSpec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "er" / "log.db"
    log = SqliteLog(path)
    log.create_topics([TopicSpec("jobs", 1)])
    log.close()
    return path


def test_the_identity_belongs_to_the_file(path: Path, tmp_path: Path) -> None:
    one, again, other = SqliteLog(path), SqliteLog(path), SqliteLog(tmp_path / "other.db")
    assert one.identity() == again.identity() != other.identity()
    for log in (one, again, other):
        log.close()


def test_nothing_but_the_log_is_left_in_the_folder(path: Path) -> None:
    assert [one.name for one in path.parent.iterdir()] == ["log.db"]


def test_commits_are_synced(path: Path) -> None:
    log = SqliteLog(path)
    with log._database.write() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    log.close()


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000])
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"notes\.txt"):
        SqliteLog(path)
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(LogUnavailable, match=r"theirs\.db is not a Rewindq log"):
        SqliteLog(path)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["theirs.db"]


def test_a_newer_format_is_refused_untouched(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={schema.FORMAT + 1}")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(LogUnavailable, match=f"format {schema.FORMAT + 1}"):
        SqliteLog(path)
    assert path.read_bytes() == content


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="folder"):
        SqliteLog(tmp_path)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_by_kind(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    share = tmp_path / "my share"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"dev / ext4 rw 0 0\nserver:/x {escaped} {kind} rw 0 0\n")
    with pytest.raises(LogUnavailable, match=kind):
        files.refuse_network(share / "sub" / "log.db", mounts)
    files.refuse_network(tmp_path / "my share 2" / "log.db", mounts)


def test_the_check_for_network_file_systems_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "file_system", lambda path, mounts: "nfs")
    with pytest.raises(LogUnavailable, match="nfs"):
        SqliteLog(tmp_path / "log.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("victim", ["log.db", "log.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_taken_away_while_in_use_takes_no_commits(path: Path, victim: str, replaced: bool) -> None:
    log = SqliteLog(path)
    log.producer().append([record("jobs")])
    gone = path.with_name(victim)
    kept = path.with_name("kept")
    gone.rename(kept)
    if replaced:
        gone.write_bytes(b"")
    with pytest.raises(AppendRefused, match=f"{victim} was removed or replaced"):
        log.producer().append([record("jobs")])
    with pytest.raises(LogUnavailable, match=f"{victim} was removed or replaced"):
        log.create_topics([TopicSpec("more", 1)])
    kept.rename(gone)
    log.producer().append([record("jobs")])
    assert len(read_all(log, "jobs")) == 2
    log.close()


def test_many_openers_of_a_new_log_make_one(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    logs: list[SqliteLog] = []
    threads = [threading.Thread(target=lambda: logs.append(SqliteLog(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({log.identity() for log in logs}) == 1 and len(logs) == 8
    for log in logs:
        log.close()


def test_closing_one_handle_leaves_the_others_locks_alone(path: Path) -> None:
    """Closing any descriptor of a file drops the process's locks on it, so opening must use SQLite only."""
    one = SqliteLog(path)
    SqliteLog(path).close()
    one.producer().append([record("jobs")])
    wal = path.with_name(path.name + "-wal")
    child = os.spawnlp(
        os.P_WAIT, "python3", "python3", "-c", f"import sqlite3; c = sqlite3.connect({str(path)!r}); "
        "c.execute('SELECT * FROM meta').fetchall(); c.close()",
    )  # fmt: skip
    assert child == 0
    assert wal.exists()  # the child's close would have removed it, had it thought itself alone
    one.producer().append([record("jobs")])
    one.close()


def test_a_closed_log_says_so(path: Path) -> None:
    log = SqliteLog(path)
    log.close()
    log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        log.topics()
    with pytest.raises(AppendRefused, match="closed"):
        log.producer().append([record("jobs")])


def test_a_forked_child_is_told_to_open_it_again(path: Path) -> None:
    log = SqliteLog(path)
    log._database._process = os.getpid() - 1
    with pytest.raises(LogUnavailable, match="fork"):
        log.topics()
    log._database._process = os.getpid()
    log.close()
