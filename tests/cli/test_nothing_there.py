"""Commands that only read make nothing: without a log they say so, and end with 5."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import Shell

APP = "tests.support.apps:app"
READING = [
    ("jobs", "list"),
    ("jobs", "show", "d1"),
    ("trace", "d1"),
    ("state", "account/a"),
    ("verify",),
    ("replay", "d1"),
    ("diff", "d1", "--branch", "b"),
    ("branch", "list"),
    ("branch", "show", "b"),
]
CHANGING = [
    ("jobs", "cancel", "d1", "--reason", "x"),
    ("jobs", "retry", "d1", "--reason", "x"),
    ("rewind", "worker", "--to", "earliest", "--reason", "x"),
    ("branch", "delete", "b", "--yes"),
]
FORKING = [("replay", "d1", "--mode", "dry-run", "--app", APP), ("fork", "d1", "--app", APP)]


@pytest.mark.parametrize("arguments", READING + CHANGING)
def test_a_log_that_is_not_there(shell: Shell, arguments: tuple[str, ...]) -> None:
    shown = shell.run_inside(*arguments, "--json")
    assert_missing(shell, shown.code, shown.json["error"]["message"])


@pytest.mark.process
@pytest.mark.parametrize("arguments", FORKING)
def test_a_log_that_is_not_there_for_a_replay(shell: Shell, arguments: tuple[str, ...]) -> None:
    shown = shell.run(*arguments, "--json")
    assert_missing(shell, shown.code, shown.json["error"]["message"])


def assert_missing(shell: Shell, code: int, message: str) -> None:
    assert code == 5
    assert f"there is no log {shell.folder}/.rewindq/log.db" in message
    assert "submit a job or start a worker" in message
    assert not list(shell.folder.iterdir())


def test_doctor_without_a_log(shell: Shell) -> None:
    shown = shell.run_inside("doctor", "--json")
    assert shown.code == 5
    checks = {check["name"]: check for check in shown.json["checks"]}
    assert "there is no log" in checks["log"]["detail"]
    assert [name for name, check in checks.items() if not check["ok"]] == ["log"]
    assert {"disk of the log", "state folder", "blob folder"} <= checks.keys()
    assert shell.run_inside("doctor", "--app", "no.such:app").code == 1, "more is wrong than a log that is not there"
    assert not list(shell.folder.iterdir())


@pytest.mark.parametrize("arguments", READING)
def test_reading_makes_no_folders(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "d1")
    before = files(shell.folder)
    shell.run_inside(*arguments)
    assert files(shell.folder) == before


def files(folder: Path) -> set[str]:
    """All that stands in a folder, but what SQLite keeps beside an open file."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix not in (".db-wal", ".db-shm")}
