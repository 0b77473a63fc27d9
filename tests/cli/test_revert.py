"""`rewindq revert` as a person runs it: looking first, reverting, what is refused, and twice."""

from __future__ import annotations

import pytest
from tests.support.cli import Shell

APP = "tests.support.apps:app"
pytestmark = pytest.mark.process


def test_a_person_looks_first_and_then_takes_it_back(own_bank: Shell) -> None:
    looked = own_bank.run_inside("revert", "d2", "--dry-run")
    assert looked.code == 0
    text = " ".join(looked.out.split())
    assert "aggregate field from to version" in text
    assert 'account:a last "d2" "d1" 3' in text
    assert 'account:a total "3.30" "1.10" 3' in text
    assert "job d2: 2 fields would be reverted, 0 refused" in text
    assert "calls to the outside are not reverted: account:a/book/book-d2: succeeded, not compensated" in text
    assert "nothing was changed; what is written until the real run counts then" in text

    worker = own_bank.start("worker", "--app", APP, "--json")
    try:
        own_bank.run("submit", "echo", "--payload", "{}", "--id", "first", "--wait")
        done = own_bank.run_inside("revert", "d2", "--reason", "wrong account", "--by", "ann", "--json")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)

    assert done.code == 0
    answer = done.json
    assert answer.items() >= {"job_id": "d2", "dry_run": False, "state": "done", "refused": []}.items()
    assert [(row["key"], row["field"], row["from"], row["to"], row["version"]) for row in answer["reverted"]] == [
        ("account:a", "last", "d2", "d1", 3),
        ("account:a", "total", "3.30", "1.10", 3),
    ]
    (effect,) = answer["effects"]
    assert (
        effect.items()
        >= {
            "key": "account:a/book/book-d2",
            "operation": "book",
            "status": "succeeded",
            "compensated": False,
        }.items()
    )
    shown = own_bank.run_inside("state", "account/a", "--json").json
    assert shown["data"] == {"total": "1.10", "last": "d1"}
    assert shown["writer"] == "a revert of d2"
    history = " ".join(own_bank.run_inside("state", "account/a", "--history").out.split())
    assert "reverted by ann" in history
    assert "(wrong account)" in history
    trace = " ".join(own_bank.run_inside("trace", "d2").out.split())
    assert "RevertDecided" in trace
    assert "reason=wrong account" in trace
    assert own_bank.run_inside("verify", "--json").json["violations"] == []

    again = own_bank.run_inside("revert", "d2", "--reason", "wrong account")
    assert (again.code, again.out.splitlines()[0]) == (0, "job d2 is already reverted: nothing to change")
    first = own_bank.run_inside("revert", "d1", "--dry-run", "--json")
    assert (first.code, [row["action"] for row in first.json["reverted"]]) == (0, ["delete", "delete"])


def test_what_somebody_else_wrote_is_refused_by_name(own_bank: Shell) -> None:
    looked = own_bank.run_inside("revert", "d1", "--dry-run")
    assert looked.code == 4
    assert "job d1: 0 fields would be reverted, 2 refused" in looked.out
    assert "refused: account:a total: d2 has written it since (version 2 at p" in looked.out
    asked = own_bank.run_inside("revert", "d1", "--dry-run", "--json")
    assert asked.code == 4
    assert {(row["field"], row["written_by"]) for row in asked.json["refused"]} == {("last", "d2"), ("total", "d2")}


def test_without_a_worker_the_command_is_kept(own_bank: Shell) -> None:
    own_bank.run_inside("jobs", "cancel", "e2", "--reason", "or the worker waits an hour for it")
    queued = own_bank.run_inside("revert", "d2", "--reason", "wrong account")
    assert queued.code == 0
    assert queued.out.splitlines()[0] == "job d2: nothing is reverted yet"
    assert "queued: no worker runs: account:a" in queued.out
    assert own_bank.run("worker", "--app", APP, "--until-idle", "--json").code == 0
    assert own_bank.run_inside("state", "account/a", "--json").json["data"]["total"] == "1.10"


def test_what_cannot_be_reverted(own_bank: Shell) -> None:
    waiting = own_bank.run_inside("revert", "e2", "--dry-run", "--json")
    assert waiting.code == 4
    assert "job e2 is delayed" in waiting.json["error"]["message"]
    assert "rewindq jobs cancel e2 --reason R" in waiting.json["error"]["message"]
    assert own_bank.run_inside("revert", "e2", "--reason", "x").code == 4
    assert own_bank.run_inside("revert", "nobody", "--dry-run").code == 5
    assert own_bank.run_inside("revert", "d2", "--attempt", "7", "--dry-run").code == 5
    assert own_bank.run_inside("revert", "d2").code == 2
    assert own_bank.run_inside("revert", "d2", "--reason", " ").code == 2
    nothing = own_bank.run_inside("revert", "e1", "--reason", "x")
    assert (nothing.code, nothing.out) == (0, "job e1 has changed nothing that could be reverted\n")


def test_its_help_has_examples_and_says_what_a_refusal_ends_in(own_bank: Shell) -> None:
    text = " ".join(own_bank.run_inside("revert", "--help").out.split())
    assert "rewindq revert order-7 --dry-run" in text
    assert "Exit 4" in text


def test_a_call_in_doubt_is_told_with_what_resolves_it(shell: Shell) -> None:
    shell.run_inside("submit", "wire", "--payload", '{"to": "x"}', "--id", "w1")
    assert shell.run("worker", "--app", APP, "--until-idle", "--json").code in (0, 1)
    done = shell.run_inside("revert", "w1", "--dry-run")
    assert done.code == 0
    assert "w1/send/send: in_doubt" in done.out
    assert "`rewindq effects resolve w1/send/send --succeeded RESULT_JSON --reason R`" in done.out
