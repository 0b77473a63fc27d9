"""Quarantines on the command line: with and without a running worker."""

from __future__ import annotations

import pytest
from tests.support.cli import Shell

APP = "tests.support.apps:app"
pytestmark = pytest.mark.process


def test_it_is_kept_while_no_worker_runs_and_holds_when_one_starts(shell: Shell) -> None:
    for number in range(4):
        shell.run_inside("submit", "echo", "--payload", "{}", "--id", f"e{number}")
    added = shell.run_inside("quarantine", "add", "echo", "--reason", "garbles", "--by", "ann", "--json")
    assert added.code == 0
    expected = {"type": "echo", "state": "queued", "recorded": [], "workers_running": False}
    assert added.json.items() >= expected.items()
    assert added.json["waiting"] == list(range(added.json["partitions"]))
    ran = shell.run("worker", "--app", APP, "--until-idle", "--processes", "2", "--json")
    assert ran.json.items() >= {"processed": 0, "held": 4}.items()
    (listed,) = shell.run_inside("quarantine", "list", "--json").json["quarantines"]
    assert listed.items() >= {"type": "echo", "reason": "garbles", "by": "ann", "held": 4, "queued": []}.items()
    shown = shell.run_inside("jobs", "show", "e1")
    assert "type quarantined: garbles" in shown.out
    assert "held: type quarantined: garbles" in " ".join(shell.run_inside("jobs", "list").out.split())
    held = {job["held"] for job in shell.run_inside("jobs", "list", "--json").json["jobs"]}
    assert held == {"type quarantined: garbles"}


def test_a_running_worker_records_it_at_once(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "first")
    worker = shell.start("worker", "--app", APP, "--json")
    try:
        assert shell.run("submit", "echo", "--payload", "{}", "--id", "before", "--wait").code == 0
        added = shell.run("quarantine", "add", "echo", "--reason", "garbles", "--json")
        assert (added.json["state"], added.json["waiting"]) == ("done", [])
        shell.run_inside("submit", "echo", "--payload", "{}", "--id", "held")
        lifted = shell.run("quarantine", "lift", "echo", "--reason", "mended")
        assert lifted.code == 0
        partitions = added.json["partitions"]
        assert lifted.out.splitlines() == ["echo runs again", f"recorded on {partitions} of {partitions} partitions"]
        assert shell.run("submit", "echo", "--payload", "{}", "--id", "held", "--wait").code == 0
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_what_is_refused(shell: Shell) -> None:
    assert shell.run_inside("quarantine", "add", "echo", "--reason", "x").code == 5, "there is no namespace yet"
    shell.run_inside("submit", "echo", "--payload", "{}")
    assert shell.run_inside("quarantine", "add", "echo").code == 2
    assert shell.run_inside("quarantine", "add", "echo", "--reason", " ").code == 2
    lifted = shell.run_inside("quarantine", "lift", "echo", "--reason", "x", "--json")
    assert lifted.code == 4
    assert "echo' is not quarantined" in lifted.json["error"]["message"]
    assert shell.run_inside("quarantine", "list").out == "nothing is quarantined\n"
