"""The worker command's summary, when one of its processes is killed in the middle of the work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.cli import Shell
from tests.support.payments import wait_until

from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import load_settings
from rewindq.processors.worker.tally import Tally

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
JOBS = 150


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_summary_counts_what_a_killed_process_did(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.environment["LEDGER"] = str(tmp_path / "ledger")
    text = "".join(
        json.dumps({"payment_id": f"p{n}", "account": f"a{n % 16}", "amount": n}) + "\n" for n in range(JOBS)
    )
    app = "tests.support.ledger_app:app"
    shell.run_inside("submit", "payment", "-", "--app", app, stdin=text)
    ledger = tmp_path / "ledger"
    worker = shell.start("worker", "--app", app, "--processes", "2", "--concurrency", "2", "--until-idle", "--json")
    try:
        wait_until(lambda: ledger.exists() and ledger.read_text().count("\n") > JOBS // 5, "a part was paid")
        os.kill(_children(worker.pid)[0], signal.SIGKILL)
        out, err = worker.communicate(timeout=100)
    finally:
        worker.kill()
        worker.wait()
    shown = json.loads(out)
    assert "a worker process died" in err and "SIGKILL" in err
    assert shown.items() >= {"processed": JOBS, "succeeded": JOBS, "failed": 0}.items()
    assert ledger.read_text().count("\n") == JOBS


def test_processes_whose_supervisor_was_killed_end_in_order(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    worker = shell.start("worker", "--app", "tests.support.apps:app", "--processes", "2")
    children: list[int] = []
    try:
        wait_until(lambda: (tmp_path / ".rewindq/state").exists(), "a partition was taken")
        children = _children(worker.pid)
        assert len(children) == 2
        worker.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in children), "they have ended", 20)
    finally:
        worker.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, err = worker.communicate(timeout=30)
    assert "the supervisor is gone" in err and "Traceback" not in err


def test_the_log_tells_what_each_worker_did(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    settings = load_settings(log=f"sqlite:///{tmp_path}/.rewindq/log.db", state_dir=tmp_path / ".rewindq/state")
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        tally = Tally(deployment)
        texts = ['{"account": "a", "amount": 1}', '{"account": "a", "amount": 0}', '{"account": "b", "amount": 2}']
        shell.run_inside("submit", "deposit", "-", stdin="".join(f"{text}\n" for text in texts))
        shell.run("worker", "--app", "tests.support.apps:app", "--until-idle")
        listed = json.loads(shell.run_inside("trace", _first(shell), "--json").out)["events"]
        (worker,) = {event["worker_id"] for event in listed if event["type"] == "JobSucceeded"}
        counted = tally.count(deployment, [worker])
        assert (counted.succeeded, counted.failed) == (2, 1)
        assert tally.count(deployment, ["another"]).processed == 0
        assert Tally(deployment).count(deployment, [worker]).processed == 0


def _first(shell: Shell) -> str:
    jobs = shell.run_inside("jobs", "list", "--status", "succeeded", "--json").json["jobs"]
    return str(jobs[0]["job_id"])
