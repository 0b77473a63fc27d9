"""Commands that only read: their JSON, what people see, and how they end when there is nothing."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from tests.support.cli import Shell

from rewindq.tools.cli import FAMILIES, build

JOB = {
    "job_id",
    "trace_id",
    "type",
    "status",
    "held",
    "attempt",
    "resource",
    "partition",
    "submitted_at",
    "finished_at",
    "failure",
    "waits",
}
ENVELOPE = {
    "event_id", "seq", "lamport", "branch", "trace_id", "job_id", "attempt", "step", "timestamp", "epoch", "worker_id",
    "causation_id", "correlation_id", "resource", "resource_version", "fencing_token", "input_ref", "output_ref",
    "side_effect", "status", "code_version", "type", "topic", "position", "body",
}  # fmt: skip


def test_jobs_list(bank: Shell) -> None:
    shown = bank.run("jobs", "list", "--json")
    assert shown.code == 0
    jobs = shown.json["jobs"]
    assert [job["job_id"] for job in jobs] == ["e2", "e1", "d3", "d2", "d1"]
    assert all(job.keys() == JOB for job in jobs)
    assert {job["job_id"]: job["status"] for job in jobs} == {
        "d1": "succeeded",
        "d2": "succeeded",
        "d3": "investigation",
        "e1": "succeeded",
        "e2": "delayed",
    }
    table = bank.run("jobs", "list", "--status", "investigation")
    assert "d3" in table.out
    assert "e1" not in table.out
    assert "\x1b" not in table.out
    assert max(map(len, table.out.splitlines())) <= 80


def test_global_options_may_stand_before_and_behind_the_command(bank: Shell) -> None:
    elsewhere = "sqlite:///elsewhere/log.db"
    before = bank.run("--log", elsewhere, "--json", "jobs", "list")
    behind = bank.run_inside("jobs", "list", "--log", elsewhere, "--json")
    both = bank.run_inside("--log", "sqlite:///wrong/log.db", "jobs", "list", "--log", elsewhere, "--json")
    for shown in (before, behind, both):
        assert shown.code == 5
        assert elsewhere in shown.json["error"]["message"]


def test_the_command_line_wins_over_the_environment(bank: Shell) -> None:
    own = "sqlite:///./.rewindq/log.db"
    assert bank.run("jobs", "list", "--json", REWINDQ_LOG="sqlite:///elsewhere/log.db").code == 5
    assert bank.run("jobs", "list", "--json", "--log", own, REWINDQ_LOG="sqlite:///elsewhere/log.db").code == 0


def test_jobs_show(bank: Shell) -> None:
    shown = bank.run_inside("jobs", "show", "d3", "--json").json
    assert shown.keys() >= JOB | {"attempts", "payload", "result"}
    assert shown["failure"]["class"] == "validation"
    assert shown["attempts"][0]["outcome"] == "failed"
    assert shown["payload"] == {"account": "a", "amount": "-1", "pin": "**********"}
    told = bank.run_inside("jobs", "show", "d1").out
    assert "succeeded (attempt 1)" in told
    assert '"total": "1.10"' in told
    assert "4711" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "show", "nope"),
        ("trace", "nope"),
        ("state", "account/zz"),
        ("state", "account/a", "--version", "9"),
        ("trace", "d1", "--attempt", "7"),
        ("rewind", "nope", "--to", "earliest", "--reason", "x"),
    ],
)
def test_what_is_not_there_ends_with_5_and_one_line(bank: Shell, arguments: tuple[str, ...]) -> None:
    shown = bank.run_inside(*arguments, "--json")
    assert shown.code == 5
    assert shown.json["error"].keys() == {"kind", "message", "exit"}
    assert re.fullmatch(r"error: .+\n", shown.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "list", "--status", "nonsense"),
        ("jobs", "list", "--since", "yesterday"),
        ("jobs", "list", "--limit", "0"),
        ("state", "account"),
        ("state", "account/a", "--at", "p1@1", "--version", "1"),
        ("state", "account/a", "--at", "here"),
        ("worker",),
        ("worker", "--app", "no.such.module:app"),
        ("worker", "--app", "tests.support.apps:app", "--processes", "2", "--metrics-port", "1"),
        ("submit", "echo", "--payload", "{"),
        ("submit", "echo", "--payload", "[]"),
        ("submit", "echo", "--payload", "{}", "--priority", "5000"),
        ("submit", "echo", "--payload", "{}", "--delay", "soon"),
        ("submit", "echo", "--payload", "{}", "-"),
        ("submit", "echo", "payload"),
        ("submit", "echo"),
        ("jobs", "cancel", "e2"),
        ("jobs", "cancel", "e2", "--reason", " "),
        ("rewind", "worker", "--to", "whenever", "--reason", "x"),
        ("--namespace", "a b", "jobs", "list"),
        ("nonsense",),
    ],
)
def test_wrong_usage_ends_with_2(bank: Shell, arguments: tuple[str, ...]) -> None:
    shown = bank.run_inside(*arguments)
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err
    document = bank.run_inside("--json", *arguments).json
    assert document.keys() == {"error"}
    assert document["error"].keys() == {"kind", "message", "exit"}
    assert document["error"]["exit"] == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("jobs", "list", "--nosuch"), "No such option: --nosuch"),
        (("submit",), "Missing argument 'TYPE'."),
        (("jobs", "list", "--limit", "soon"), "Invalid value for '--limit'"),
        (("jobs", "nonsense"), "No such command 'nonsense'."),
        (("jobs",), "Missing command."),
        ((), "Missing command."),
    ],
)
def test_wrong_usage_is_one_document_too(bank: Shell, arguments: tuple[str, ...], reason: str) -> None:
    shown = bank.run_inside("--json", *arguments)
    assert shown.code == 2
    assert reason in shown.json["error"]["message"]
    assert reason in shown.err


def test_the_word_json_behind_two_dashes_is_no_option(bank: Shell) -> None:
    shown = bank.run_inside("jobs", "show", "d1", "d2", "--", "--json")
    assert (shown.code, shown.out) == (2, "")


def test_version(bank: Shell) -> None:
    assert bank.run_inside("--version").out == f"rewindq {metadata.version('rewindq')}\n"
    for arguments in (("--version", "--json"), ("--json", "--version")):
        assert bank.run_inside(*arguments).json == {"version": metadata.version("rewindq")}


def test_trace(bank: Shell) -> None:
    shown = bank.run_inside("trace", "d1", "--json").json
    assert (shown["job_id"], shown["trace_id"]) == ("d1", "d1")
    assert all(event.keys() >= ENVELOPE for event in shown["events"])
    types = [event["type"] for event in shown["events"]]
    assert types[0] == "JobSubmitted"
    assert types[-1] == "JobSucceeded"
    told = bank.run("trace", "d1").out
    positions = re.findall(r"^p\d@(\d+)", told, re.MULTILINE)
    assert positions == sorted(positions, key=int)
    assert len(positions) == len(types) - 1
    assert "refuse value=false" in told
    assert max(map(len, told.splitlines())) <= 80


def test_state(bank: Shell) -> None:
    now = bank.run_inside("state", "account/a", "--json").json
    assert now.keys() == {"key", "version", "position", "data", "writer"}
    assert (now["version"], now["data"]["total"], now["writer"]) == (2, "3.30", "d2")
    first = bank.run_inside("state", "account/a", "--version", "1", "--json").json
    assert first["data"]["total"] == "1.10"
    assert bank.run_inside("state", "account/a", "--at", first["position"], "--json").json == first
    then = bank.run_inside("state", "account/a", "--time", "2001-01-01T00:00:00Z", "--json").json
    assert (then["version"], then["data"]) == (0, {})
    history = bank.run_inside("state", "account/a", "--history", "--json").json["versions"]
    assert [one["version"] for one in history] == [1, 2]
    assert history[0].keys() >= {"version", "parent", "position", "changes", "job_id", "step", "fencing_token"}


def test_verify_and_doctor(bank: Shell) -> None:
    verified = bank.run_inside("verify", "--json")
    assert verified.code == 0
    assert verified.json["digest"] == verified.json["rebuilt_digest"]
    doctor = bank.run_inside("doctor", "--app", "tests.support.apps:app", "--json")
    assert doctor.code == 0, doctor.out
    checks = {check["name"]: check for check in doctor.json["checks"]}
    assert "job types deposit, echo" in checks["app"]["detail"]
    assert checks["topics"]["detail"] == "6 topics of 2 partitions"
    assert "journal mode wal" in checks["durability"]["detail"]
    ill = bank.run_inside("doctor", "--app", "no.such:app", "--log", "sqlite:////proc/nowhere/log.db")
    assert ill.code == 1
    assert len(re.findall(r"^FAIL (log|app) ", ill.out, re.MULTILINE)) == 2


def test_every_command_has_help_with_an_example(bank: Shell) -> None:
    listed = bank.run_inside("--help").out
    names = re.findall(r"^│ ([a-z]+)  ", listed, re.MULTILINE)
    assert {"submit", "worker", "jobs", "trace", "state", "rewind", "verify", "doctor"} <= set(names)
    for arguments in (["trace"], ["jobs", "cancel"], ["submit"]):
        shown = bank.run_inside(*arguments, "--help")
        assert shown.code == 0
        assert "Example: rewindq " in shown.out
        assert "--json" in shown.out


def test_the_families_name_every_command() -> None:
    """What is imported for a command is decided by this table."""
    for family, commands in FAMILIES.items():
        built = build([commands[0]])
        names = [one.name for one in built.registered_commands]
        names += [group.typer_instance.info.name for group in built.registered_groups if group.typer_instance]
        assert sorted(map(str, names)) == sorted(commands), family


def test_a_word_that_is_a_commands_name_by_chance(bank: Shell) -> None:
    shown = bank.run("--namespace", "worker", "jobs", "list", "--json")
    assert shown.code == 5
    assert "'worker'" in shown.json["error"]["message"]
