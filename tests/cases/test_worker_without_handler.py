"""In a rolling deploy a worker that lacks a type costs its jobs nothing: they wait, visibly, for one that has it.

The guards: `processors/worker/intake.py` (`_hold`: a submission of an unknown type is kept as it came) and `revive.py`
(`release_held`: the next owner that knows the type takes it in). The rules one by one, in one process (held cancels,
secrets, quarantines, what was accepted by who knew the type, the end of the wait), are in
`tests/worker/test_unknown_types.py`; here are the deploy's real processes, on both logs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ops_app import lines
from tests.support.payments import wait_until
from tests.support.workers import Running, event_counts, records

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
V1, V2 = "tests.support.ops_app:app", "tests.support.deploy_app:app"
JOBS = 12


class Deploy:
    """A namespace and the workers of two versions on it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.ledger = settings, folder / "ledger"
        self.running: list[Running] = []
        with Deployment.open(settings) as deployment:
            deployment.ensure_topics()

    def start(self, app: str) -> Running:
        """A worker of a version, which owns something."""
        worker = Running(self.settings, self.ledger, "--app", app, "--name", "w")
        self.running.append(worker)
        worker.await_line("partition taken")
        return worker

    def ran(self, kind: str) -> list[str]:
        """Ids of jobs of a type that ran, but for periodic ones."""
        return [line.job_id for line in lines(self.ledger, "start", kind) if not line.job_id.startswith("cron:")]

    def client(self) -> Client:
        """One for a short while."""
        return Client(log=self.settings.log, namespace=self.settings.namespace)


@pytest.fixture
def deploy(settings: Settings, tmp_path: Path) -> Iterator[Deploy]:
    found = Deploy(settings, tmp_path)
    yield found
    for worker in found.running:
        worker.kill()


def test_a_rolling_deploy_discards_nothing_and_burns_no_attempt(deploy: Deploy) -> None:
    first = deploy.start(V1)
    with deploy.client() as client:
        for number in range(JOBS):
            client.submit("fresh", {"number": number}, job_id=f"fresh-{number}")
        client.submit("fresh", {"number": 50}, job_id="fresh-later", delay=6)
        client.submit("fresh", {"number": 51, "since": "v3"}, job_id="fresh-newer")
        for number in range(JOBS):
            client.submit("other", {"number": number}, job_id=f"other-{number}")
        submitted = time.time()
        wait_until(lambda: len(deploy.ran("other")) == JOBS, "what the first version knows is not held up")
        wait_until(lambda: event_counts(deploy.settings)["SubmissionHeld"] == JOBS + 2, "the rest waits")
        job = client.status("fresh-3")
        assert job["status"] == s.WAITING and job["attempt"] == 0
        assert "fresh" in str(job["waits"])
    deploy.start(V2)
    first.process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(set(deploy.ran("fresh"))) == JOBS + 1, "the second version does it all")
    (late,) = [line.at for line in lines(deploy.ledger, "start", "fresh") if line.job_id == "fresh-later"]
    assert late >= submitted + 5
    wait_until(lambda: any(x.job_id.startswith("cron:") for x in lines(deploy.ledger, "start", "fresh")), "periodic")
    for worker in deploy.running:
        worker.stop()
    assert sorted(deploy.ran("fresh")) == sorted([f"fresh-{n}" for n in range(JOBS)] + ["fresh-later"])
    found = [(r.job_id, r.attempt, event.body) for r in records(deploy.settings) for event in r.events]
    parked = {job_id: body for job_id, _, body in found if isinstance(body, e.MovedToInvestigation)}
    assert set(parked) == {"fresh-newer"}
    assert parked["fresh-newer"].failure_class == "validation" and "since" in parked["fresh-newer"].reason
    assert {attempt for _, attempt, body in found if isinstance(body, e.AttemptStarted)} == {1}
    assert not [body for _, _, body in found if isinstance(body, e.AttemptLost | e.RetryScheduled | e.AttemptFailed)]


def test_a_type_that_was_removed_everywhere_is_parked_after_the_wait(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWINDQ_UNKNOWN_TYPE_WAIT", "1.5")
    deploy.start(V1)
    with deploy.client() as client:
        client.submit("fresh", {"number": 1}, job_id="gone")
        wait_until(lambda: event_counts(deploy.settings)["MovedToInvestigation"] == 1, "it is parked")
        failure = client.status("gone")["failure"]
    assert "unknown job type 'fresh'" in failure["reason"] and "charge" in failure["reason"]
    assert event_counts(deploy.settings)["AttemptStarted"] == 0


def test_a_killed_worker_without_the_handler_takes_nothing_with_it(deploy: Deploy) -> None:
    """It dies with jobs held; its successor of the same version holds them on, and the next one runs them."""
    first = deploy.start(V1)
    with deploy.client() as client:
        for number in range(4):
            client.submit("fresh", {"number": number}, job_id=f"fresh-{number}")
    wait_until(lambda: event_counts(deploy.settings)["SubmissionHeld"] == 4, "they are held")
    first.process.kill()
    second = deploy.start(V1)
    deploy.start(V2)
    second.process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(deploy.ran("fresh")) == 4, "all have run")
    counts = event_counts(deploy.settings)
    # What is released may be at home where a worker without the type still is, and is held there once more.
    assert counts["SubmissionHeld"] == counts["SubmissionReleased"] >= 4
    assert counts["MovedToInvestigation"] == 0
