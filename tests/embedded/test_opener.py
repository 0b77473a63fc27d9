"""Logs are opened by URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.log.opener import open_log
from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import LogUnavailable, TopicSpec


def test_a_relative_and_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = open_log("sqlite:///./.rewindq/log.db")
    two = open_log(f"sqlite:///{tmp_path}/.rewindq/log.db?lease_ttl=2&busy_timeout=1.5")
    assert isinstance(one, SqliteLog) and isinstance(two, SqliteLog)
    assert one.path == two.path == tmp_path / ".rewindq" / "log.db"
    assert one.url == "sqlite:///./.rewindq/log.db"
    assert one.identity() == two.identity()
    assert (two._lease_ttl, two._database._busy_timeout) == (2.0, 1.5)
    one.close()
    two.close()


def test_a_path_with_blanks_and_signs(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/my%20logs/50%25.db")
    assert (tmp_path / "my logs" / "50%.db").exists()
    log.close()


def test_memory_logs_of_one_name_are_one() -> None:
    one, two, other = open_log("memory:///a"), open_log("memory:///a"), open_log("memory:///b")
    one.create_topics([TopicSpec("t", 1)])
    assert isinstance(one, MemoryLog) and two.topics() == {"t": 1} and other.topics() == {}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "log.db",
        "redis://x",
        "sqlite://x",
        "sqlite:///",
        "memory:///",
        "sqlite:///x?what=1",
        "sqlite:///x?lease_ttl=0",
        "sqlite:///x?lease_ttl=soon",
        "sqlite:///x?busy_timeout=inf",
    ],
)
def test_an_address_that_cannot_be_understood(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogUnavailable, match="log address"):
        open_log(url)
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_log_does_not_load_kafkas_client(tmp_path: Path) -> None:
    code = (
        "import sys; from rewindq.engine.log.opener import open_log; "
        f"open_log('sqlite:///{tmp_path}/log.db').close(); sys.exit('confluent_kafka' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
