"""Whole stories: workers that run, are stopped and are commanded from other processes."""

from __future__ import annotations

import io
import json
import shlex
import signal

import pytest
from rich.console import Console
from tests.support.apps import app
from tests.support.cli import Shell

from rewindq.engine.core import state as s
from rewindq.engine.runtime.commands import CommandOutcome, cancel_job
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.past import FoundJob, Past
from rewindq.engine.runtime.settings import load_settings
from rewindq.tools.cli.jobs import _print_outcome

APP = "tests.support.apps:app"
pytestmark = pytest.mark.process


def test_submit_run_and_read(shell: Shell) -> None:
    text = "".join(json.dumps({"account": f"a{n % 5}", "amount": n}) + "\n" for n in range(1, 101))
    shell.run_inside("submit", "deposit", "-", "--app", APP, stdin=text)
    ran = shell.run("worker", "--app", APP, "--until-idle", "--json")
    assert ran.code == 0
    assert ran.json.items() >= {"processed": 100, "succeeded": 100, "failed": 0}.items()
    assert shell.run_inside("state", "account/a0", "--json").json["data"]["total"] == str(sum(range(5, 101, 5)))
    assert shell.run_inside("verify", "--json").json["ok"]


def test_several_processes_share_the_work(shell: Shell) -> None:
    text = "".join(json.dumps({"text": str(n)}) + "\n" for n in range(200))
    shell.run_inside("submit", "echo", "-", stdin=text)
    ran = shell.run("worker", "--app", APP, "--processes", "2", "--until-idle", "--json")
    assert ran.code == 0
    assert ran.json.items() >= {"processed": 200, "succeeded": 200, "failed": 0}.items()


def test_waiting_for_a_job_and_stopping_its_worker(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "first")
    worker = shell.start("worker", "--app", APP, "--json")
    try:
        waited = shell.run("submit", "echo", "--payload", '{"text": "x"}', "--id", "j1", "--wait", "--json")
        assert waited.code == 0
        assert waited.json["jobs"][0]["result"] == {"text": "x"}
        refused = shell.run_inside(
            "submit", "deposit", "--payload", '{"account": "a", "amount": 0}', "--wait", "--json"
        )
        assert refused.code == 1
        assert refused.json["jobs"][0]["status"] == "investigation"
        running = shell.run_inside("rewind", "worker", "--to", "earliest", "--reason", "x", "--json")
        assert running.code == 4
        assert "is running" in running.json["error"]["message"]
        planned = shell.run_inside("rewind", "worker", "--to", "earliest", "--reason", "x", "--dry-run", "--json")
        assert planned.code == 0
        assert len(planned.json["members"]) == 1
    finally:
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert json.loads(out)["succeeded"] == 2


def test_a_wait_that_is_over(shell: Shell) -> None:
    shown = shell.run_inside("submit", "echo", "--payload", "{}", "--wait", "--timeout", "0.2", "--json")
    assert shown.code == 1
    assert shown.json["jobs"][0]["status"] == "waiting"
    assert "did not end within 0.2 s" in shown.err


def test_commands_are_carried_out_by_a_running_worker(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "later", "--delay", "1h")
    shell.run_inside("submit", "deposit", "--id", "bad", "--payload", '{"account": "a", "amount": 0}')
    worker = shell.start("worker", "--app", APP)
    try:
        shell.run_inside("submit", "echo", "--payload", "{}", "--wait", "--json")
        cancelled = shell.run("jobs", "cancel", "later", "--reason", "not wanted", "--json")
        assert cancelled.code == 0
        assert (cancelled.json["status"], cancelled.json["command"]["state"]) == ("cancelled", "done")
        again = shell.run_inside("jobs", "cancel", "later", "--reason", "twice")
        assert again.code == 4
        assert "cancelled already" in again.err
        retried = shell.run_inside("jobs", "retry", "bad", "--reason", "try again", "--json")
        assert retried.json["command"]["state"] == "done"
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    types = [event["type"] for event in shell.run_inside("trace", "later", "--json").json["events"]]
    assert types == ["JobSubmitted", "JobAccepted", "JobCancelled"]
    assert shell.run_inside("jobs", "show", "bad", "--json").json["attempt"] == 2


def test_a_person_resolves_an_effect_and_the_job_goes_on(shell: Shell) -> None:
    shell.run_inside("submit", "wire", "--payload", '{"to": "x y"}', "--id", "w 1")
    shell.run("worker", "--app", APP, "--until-idle")
    (effect,) = shell.run_inside("effects", "list", "--in-doubt", "--job", "w 1", "--json").json["effects"]
    key = effect["key"]
    assert key in shell.run_inside("effects", "list").out
    reason = shell.run_inside("jobs", "show", "w 1", "--json").json["failure"]["reason"]
    assert shlex.split(reason.split("`")[1])[3] == key
    why = ("--reason", "asked the bank")
    assert shell.run_inside("effects", "resolve", key, *why).code == 2
    assert shell.run_inside("effects", "resolve", key, "--failed", "--succeeded", "1", *why).code == 2
    assert shell.run_inside("effects", "resolve", key, "--failed", "--reason", " ").code == 2
    assert shell.run_inside("effects", "resolve", key, "--succeeded", "{", *why).code == 2
    assert shell.run_inside("effects", "resolve", "no/such/key", "--failed", *why).code == 5
    worker = shell.start("worker", "--app", APP)
    try:
        shell.run_inside("submit", "echo", "--payload", "{}", "--wait")
        told = shell.run_inside("effects", "resolve", key, "--succeeded", '"r1"', *why, "--by", "ann", "--json")
        assert (told.code, told.json["status"], told.json["command"]["state"]) == (0, "succeeded", "done")
        again = shell.run_inside("effects", "resolve", key, "--failed", *why)
        assert again.code == 4
        assert "recorded as succeeded" in again.err
        assert shell.run_inside("jobs", "retry", "w 1", *why).code == 0
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    shown = shell.run_inside("jobs", "show", "w 1", "--json").json
    assert (shown["status"], shown["result"]) == ("succeeded", "r1")
    events = shell.run_inside("trace", "w 1", "--json").json["events"]
    (resolved,) = [event for event in events if event["type"] == "EffectResolved"]
    assert resolved["body"].items() >= {"actor": "ann", "reason": "asked the bank", "answer": "r1"}.items()


def test_a_command_waits_for_a_worker(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "later", "--delay", "1h")
    shown = shell.run_inside("jobs", "cancel", "later", "--reason", "not wanted")
    assert shown.code == 0
    assert "is queued: no worker runs" in shown.out
    assert shell.run("worker", "--app", APP, "--until-idle", "--json").code == 0
    assert shell.run_inside("jobs", "show", "later", "--json").json["status"] == "cancelled"


def test_a_cancel_of_a_job_that_the_worker_has_not_seen_is_kept_and_told(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "--payload", "{}", "--id", "x")
    settings = load_settings(log=f"sqlite:///{shell.folder}/.rewindq/log.db")
    with Deployment.open(settings) as deployment, Past(deployment) as past:
        found = FoundJob("y", 0, s.JobHead("echo", "y", None, 0, 0, 0, ""), s.JobState(s.WAITING))
        worker = shell.start("worker", "--app", APP)
        try:
            shell.run_inside("submit", "echo", "--payload", "{}", "--wait")
            assert cancel_job(past, found, "not wanted", None, 20).state == "kept"
            shell.run_inside("submit", "echo", "--payload", "{}", "--id", "y", "--wait")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=60)
    shown = shell.run_inside("jobs", "show", "y", "--json").json
    assert (shown["status"], shown["cancel_reason"]) == ("cancelled", "not wanted")


def test_a_kept_cancel_says_when_it_takes_effect() -> None:
    out = io.StringIO()
    job = {"job_id": "y", "status": "waiting", "attempt": 0, "held": None}
    _print_outcome(Console(file=out, width=120), job, CommandOutcome("c1", "kept"), True)
    assert "the command c1 is kept: the job is cancelled when it is taken in" in out.getvalue()


def test_after_a_kill_another_process_goes_on_undoing(shell: Shell) -> None:
    app, ledger = "tests.support.undoing_outside:app", shell.folder / "ledger"
    shell.run_inside("submit", "order", "--payload", json.dumps({"ledger": str(ledger)}), "--id", "o1")
    killed = shell.run("worker", "--app", app, "--until-idle")
    assert killed.code not in (0, 3)
    assert ledger.read_text().splitlines() == ["charge", "refund r1"]
    assert shell.run("worker", "--app", app, "--until-idle").code == 0
    assert ledger.read_text().splitlines() == ["charge", "refund r1", "refund r1"]
    shown = shell.run_inside("jobs", "show", "o1", "--json").json
    assert shown["status"] == "investigation"
    assert shown["failure"]["reason"] == "sold out (validation is never retried); compensated: charge"
    out = shell.run_inside("effects", "list", "--job", "o1").out
    assert "succeeded (compensation: succeeded)" in out
    assert shell.run_inside("verify", "--json").json["ok"]


def test_rewinding_runs_nothing_twice_and_is_recorded(shell: Shell) -> None:
    shell.run_inside("submit", "echo", "-", stdin='{"text": "a"}\n{"text": "b"}\n')
    shell.run("worker", "--app", APP, "--until-idle")
    planned = shell.run_inside(
        "rewind", "worker", "--to", "earliest", "--reason", "look again", "--dry-run", "--json"
    ).json
    assert sum(planned["from"].values()) == 2
    assert sum(planned["to"].values()) == 0
    assert (
        shell.run_inside("rewind", "worker", "--to", "latest", "--reason", "x", "--dry-run", "--json").json["from"]
        == (planned["from"])
    )
    assert shell.run_inside("rewind", "rewindq.worker", "--to", "earliest", "--reason", "look again").code == 0
    assert shell.run("worker", "--app", APP, "--until-idle", "--json").json["processed"] == 0
    verified = shell.run_inside("verify", "--json").json
    assert verified["ok"], verified["violations"]
    assert verified["jobs"] == 2


def test_what_a_rewind_to_a_position_means_is_told(own_bank: Shell) -> None:
    position = own_bank.run_inside("trace", "d1", "--json").json["events"][1]["position"]
    told = own_bank.run_inside("rewind", "worker", "--to", position, "--reason", "x", "--dry-run").out
    meaning = f"{position} stands for the submission that was taken in last at or before this event: it is read again"
    assert meaning in " ".join(told.split())
    assert "taken in last at or before that event" in " ".join(
        own_bank.run_inside("rewind", "--help").out.replace("│", " ").split()
    )


def test_verify_ends_with_3_on_damage(shell: Shell) -> None:
    receipt = shell.run_inside("submit", "echo", "--payload", "{}", "--id", "lost", "--json").json["jobs"][0]
    with Deployment.open(load_settings(log=f"sqlite:///{shell.folder}/.rewindq/log.db")) as deployment:
        place = (deployment.topics.jobs, receipt["partition"])
        deployment.log.set_offsets(deployment.group, {place: receipt["offset"] + 1})
    shown = shell.run("verify")
    assert shown.code == 3
    assert "job lost" in shown.out
    assert shown.out.rstrip().endswith("not ok")


def test_what_waits_for_another_worker_is_told_by_the_worker_and_by_the_lists(shell: Shell) -> None:
    assert shell.run_inside("submit", "not-yet", "--payload", "{}", "--id", "new").code == 0
    ran = shell.run("worker", "--app", APP, "--until-idle")
    assert ran.code == 0
    assert "1 wait for a worker that knows their type" in " ".join(ran.out.split())
    reason = f"waits for a capable worker: its partition's has no 'not-yet', it has: {', '.join(sorted(app.types))}"
    job = shell.run_inside("jobs", "show", "new", "--json").json
    assert (job["status"], job["waits"], job["attempt"]) == ("waiting", reason, 0)
    assert [event["type"] for event in shell.run_inside("trace", "new", "--json").json["events"]] == [
        "JobSubmitted",
        "SubmissionHeld",
    ]
    listed = " ".join(shell.run_inside("jobs", "list").out.split())
    assert "waits for a capable worker" in listed
