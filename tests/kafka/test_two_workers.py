"""Two worker processes on a real broker: periodic jobs, a quarantine, a blocked key, and limits over both of them.

The rules themselves are tested in `tests/worker`, on the embedded log and in one process; here, what only a broker and
several processes show: partitions that change hands, commands that arrive at two owners, and the time that it takes.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ops_app import lines
from tests.support.payments import wait_until
from tests.support.workers import Running, event_counts, records
from tests.unit.core.test_rate import most_in_a_period

from rewindq.engine.core import events as e
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings, load_settings

pytestmark = [pytest.mark.kafka, pytest.mark.process, pytest.mark.timeout(180)]


class Site:
    """A fresh namespace with a ledger, and the workers on it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.ledger = folder / "ledger"
        self.broken = folder / "ledger.broken"
        self.running: list[Running] = []

    def start(self, count: int, *options: str, app: str = "ops_app") -> list[Running]:
        """More workers; returns when each has a partition."""
        place = ("--app", f"tests.support.{app}:app", "--name", "w")
        started = [Running(self.settings, self.ledger, *place, *options) for _ in range(count)]
        self.running += started
        for worker in started:
            worker.await_line("partition taken")
        return started

    def submit(self, type_: str, numbers: range, **payload: Any) -> None:
        """Jobs `{type}-{number}`."""
        with self.client() as client:
            for number in numbers:
                client.submit(type_, {"number": number, **payload}, job_id=f"{type_}-{number}")

    def client(self) -> Client:
        """One for a short while."""
        return Client(log=self.settings.log, namespace=self.settings.namespace, app=self._app())

    @staticmethod
    def _app() -> Any:
        from tests.support.ops_app import app

        return app

    def started(self, type_: str) -> list[str]:
        """Ids of jobs of a type whose handler began, in order, once for each time."""
        return [line.job_id for line in lines(self.ledger, "start", type_)]

    def ended(self, type_: str) -> int:
        """How many handlers of a type came to their end."""
        return len(lines(self.ledger, "end", type_))

    def stop(self) -> None:
        """Ends the workers in order."""
        for worker in self.running:
            worker.stop()


@pytest.fixture
def site(kafka_bootstrap: str, tmp_path: Path) -> Iterator[Site]:
    log = f"kafka://{kafka_bootstrap}?session_timeout_ms=3000&transaction_timeout_ms=6000"
    given = {"log": log, "namespace": f"two-{uuid.uuid4().hex[:8]}", "partitions": 4}
    settings = load_settings(**given, state_dir=tmp_path / "state")
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
    found = Site(settings, tmp_path)
    yield found
    for worker in found.running:
        worker.kill()


def test_each_planned_instant_is_one_job_while_workers_come_go_and_die(site: Site) -> None:
    first, second = site.start(2, app="ticking_app")
    wait_until(lambda: len(site.started("tick")) >= 2, "two ticks")
    site.start(1, app="ticking_app")
    first.process.send_signal(signal.SIGTERM)
    wait_until(lambda: first.process.poll() is not None, "the first has left")
    before = len(site.started("tick"))
    second.process.kill()
    site.start(1, app="ticking_app")
    wait_until(lambda: len(site.started("tick")) >= before + 4, "more ticks")
    site.stop()
    bodies = [(record.job_id, event.body) for record in records(site.settings) for event in record.events]
    instants = [body.instant for _, body in bodies if isinstance(body, e.InstantPlanned)]
    planned = [body.job_id for _, body in bodies if isinstance(body, e.InstantPlanned)]
    accepted = [job_id for job_id, body in bodies if isinstance(body, e.JobAccepted)]
    assert instants == list(range(instants[0], instants[-1] + 1, 1_000_000))
    # The newest ones may still wait to be taken in.
    assert len(set(accepted)) == len(accepted) > 5 and set(accepted) <= set(planned)
    assert not [body for _, body in bodies if isinstance(body, e.SubmissionDuplicated)]
    again = Counter(site.started("tick"))
    assert set(again) <= set(accepted)
    assert sum(again.values()) - len(again) <= event_counts(site.settings)["AttemptLost"]


def test_a_quarantine_holds_within_a_second_on_both_and_loses_nothing(
    site: Site, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site.start(2, "--concurrency", "3")
    site.submit("charge", range(60), seconds=0.2)
    wait_until(lambda: len(site.started("charge")) >= 8, "some have started")
    with site.client() as client:
        sent = time.time()
        outcome = client.quarantine("charge", "charges twice", timeout=20)
        told = time.time()
        assert outcome.waiting == ()
        # What is submitted afterwards runs its whole way before the look at what has started.
        site.submit("other", range(24), seconds=0.2)
        wait_until(lambda: site.ended("other") == 24 and site.ended("charge") == len(site.started("charge")), "others")
        last = max(line.at for line in lines(site.ledger, "start", "charge"))
        count = len(site.started("charge"))
        with capsys.disabled():
            print(
                f"\nquarantine: acknowledged {told - sent:.2f} s after the command, last start at {last - sent:.2f} s"
            )
        assert 8 <= count < 60
        assert last <= told + 1.0
        client.lift_quarantine("charge", "mended", timeout=20)
    wait_until(lambda: site.ended("charge") == 60, "all have run")
    site.stop()
    assert sorted(Counter(site.started("charge")).values()) == [1] * 60
    counts = event_counts(site.settings)
    assert (counts["JobSucceeded"], counts["AttemptLost"], counts["MovedToInvestigation"]) == (84, 0, 0)


def test_a_blocked_key_keeps_its_order_through_the_death_of_its_owner(site: Site) -> None:
    site.broken.touch()
    site.start(2)
    site.submit("fragile", range(1), tenant="a", fails=True)
    wait_until(lambda: event_counts(site.settings)["KeyBlocked"] == 1, "the key is blocked")
    site.submit("fragile", range(1, 4), tenant="a")
    site.submit("fragile", range(4, 8), tenant="b")
    wait_until(lambda: site.ended("fragile") == 4, "the other tenant's have run")
    (owner,) = {line.pid for line in lines(site.ledger) if line.job_id == "fragile-0"}
    (killed,) = [worker for worker in site.running if worker.process.pid == owner]
    killed.process.kill()
    site.submit("fragile", range(8, 12), tenant="b")
    wait_until(lambda: site.ended("fragile") == 8, "and again, maybe with another owner")
    assert not {f"fragile-{n}" for n in (1, 2, 3)} & set(site.started("fragile"))
    with site.client() as client:
        assert "fragile-0" in str(client.status("fragile-2")["waits"])
        site.broken.unlink()
        client.retry("fragile-0", "mended", timeout=20)
    wait_until(lambda: site.ended("fragile") == 12, "all have run")
    site.stop()
    order = [job for job in site.started("fragile") if job in {f"fragile-{n}" for n in range(4)}]
    assert order == ["fragile-0", "fragile-0", "fragile-1", "fragile-2", "fragile-3"]


def test_limits_and_rates_hold_over_both_and_through_a_hand_over(site: Site) -> None:
    first, _ = site.start(2)
    for place, tenant in enumerate("abcd"):
        site.submit("limited", range(8 * place, 8 * place + 8), tenant=tenant, seconds=0.2)
    site.submit("rated", range(70))
    wait_until(lambda: len(site.started("rated")) >= 20, "it goes on")
    site.start(1)
    first.process.send_signal(signal.SIGTERM)
    wait_until(lambda: (site.ended("limited"), site.ended("rated")) == (32, 70), "all have run")
    site.stop()
    for place in range(4):
        ids = {f"limited-{n}" for n in range(8 * place, 8 * place + 8)}
        steps = sorted(
            [(line.at, 1) for line in lines(site.ledger) if line.job_id in ids]
            + [(line.at, -1) for line in lines(site.ledger, "end") if line.job_id in ids]
        )
        level = most = 0
        for _, step in steps:
            level += step
            most = max(most, level)
        assert most == 2
    assert most_in_a_period([line.at for line in lines(site.ledger, "start", "rated")], 1.0) <= 20
    assert set(Counter(site.started("rated")).values()) == {1}
