"""`rewindq demo` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rewindq.tools.cli import build
from rewindq.tools.demo.orders import sample
from rewindq.tools.demo.place import NotADemo, Place
from rewindq.tools.demo.running import CommandFailed
from rewindq.tools.demo.story import Story

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewindq.tools.cli", "demo", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("REWINDQ_")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)


def test_the_whole_story_holds_and_its_incidents_really_occurred(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--json")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    told: dict[str, Any] = json.loads(ran.stdout)
    orders = sample(300)
    total = str(sum((order.amount for order in orders), Decimal(0)))
    assert told["ok"] is True
    assert told["orders"] == told["succeeded"] == told["charges"] == 300
    assert told["amount_in_file"] == told["amount_charged"] == told["amount_on_accounts"] == total
    assert told["killed_pid"] > 0
    assert all(count > 0 for count in told["incidents"].values()), told["incidents"]
    wrong = told["wrong_points"]
    assert wrong["points"] != wrong["due"]
    key = f"customer:{wrong['customer']}"
    assert told["fork"] == [{"key": key, "field": "points", "original": wrong["points"], "fork": wrong["due"]}]
    assert told["dry_run_divergences"] == []
    ledger = (tmp_path / ".rewindq/demo/gateway.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in ledger}) == len(ledger) == 300


def test_people_are_told_each_step_with_its_command_and_what_to_type_next(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--orders", "200", "--no-kill", "--keep", "kept")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    for command in (
        "submit place_order",
        "worker --app",
        "trace order-",
        "replay order-",
        "fork order-",
        "diff order-",
    ):
        assert f"$ rewindq {command}" in ran.stdout
    assert "What to type next" in ran.stdout and "\x1b[" not in ran.stdout and "kill -9" not in ran.stdout
    assert (tmp_path / "kept" / "log.db").exists()
    listed = subprocess.run(
        [sys.executable, "-m", "rewindq.tools.cli", "jobs", "list", "--limit", "3", "--json"],
        cwd=tmp_path / "kept", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert len(json.loads(listed.stdout)["jobs"]) == 3


def test_a_folder_that_is_not_a_demos_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("keep me")
    ran = demo(tmp_path, "--keep", "mine", "--json")
    assert ran.returncode == 4
    assert "mine" in json.loads(ran.stdout)["error"]["message"]
    assert (mine / "letter.txt").read_text() == "keep me"


def test_too_few_or_too_many_orders_are_wrong_usage(tmp_path: Path) -> None:
    for count in ("0", "199", "501"):
        assert demo(tmp_path, "--orders", count).returncode == 2
    assert not (tmp_path / ".rewindq").exists()


def test_an_earlier_demo_makes_way(tmp_path: Path) -> None:
    Place(tmp_path / "d")
    (tmp_path / "d" / "log.db").write_text("old")
    Place(tmp_path / "d")
    assert not (tmp_path / "d" / "log.db").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADemo, match="not a folder"):
        Place(tmp_path / "file")


def test_a_story_whose_checks_fail_ends_with_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Story, "run", lambda story: {"ok": False})
    assert CliRunner().invoke(build(), ["demo", "--json"]).exit_code == 1
    monkeypatch.setattr(Story, "run", lambda story: {"ok": True})
    assert CliRunner().invoke(build(), ["demo", "--json"]).exit_code == 0


def test_a_story_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(story: Story) -> None:
        raise CommandFailed("`rewindq verify` ended with exit code 1: no log")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Story, "run", run)
    told = CliRunner().invoke(build(), ["demo", "--json"])
    assert told.exit_code == 1 and "no log" in json.loads(told.stdout)["error"]["message"]
