"""Jobs of all partitions change one counter under a lease, while their workers freeze, wake and die."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.payments import wait_until

from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.client import Client, Submission
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify

pytestmark = [pytest.mark.process, pytest.mark.timeout(float(os.environ.get("REWINDQ_CHAOS_TIMEOUT", "240")))]
#: The same with more, by hand: `REWINDQ_CHAOS_TURNS=10000`; `REWINDQ_CHAOS_PAUSE` seconds of peace at most in between.
TURNS = int(os.environ.get("REWINDQ_CHAOS_TURNS", "80"))
PAUSE = float(os.environ.get("REWINDQ_CHAOS_PAUSE", "2"))
WORKERS = 4
ROOT = Path(__file__).parents[2]
HOME = partition_for(b"counter:c", 4)


def sides() -> list[str]:
    """Two sides whose jobs are at home elsewhere than the counter, on two partitions."""
    found = {partition_for(f"side:{n}".encode(), 4): str(n) for n in range(100)}
    return [side for partition, side in sorted(found.items()) if partition != HOME][:2]


class Crowd:
    """Workers that a thread freezes, wakes and kills at random; a killed one is replaced."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._draw = random.Random(seed)
        self.done: dict[str, int] = {"STOP": 0, "KILL": 0}
        self.workers = [self._start() for _ in range(WORKERS)]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._disturb)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        arguments = [settings.log, settings.namespace, str(settings.state_dir), "no"]
        return subprocess.Popen([sys.executable, "-m", "tests.support.counter_app", *arguments], cwd=ROOT)

    def _disturb(self) -> None:
        while not self._end.wait(self._draw.uniform(0.5, PAUSE)):
            place = self._draw.randrange(WORKERS)
            worker = self.workers[place]
            if self._draw.random() < 0.4:
                worker.kill()
                worker.wait()
                self.done["KILL"] += 1
                self.workers[place] = self._start()
                continue
            worker.send_signal(signal.SIGSTOP)
            self.done["STOP"] += 1
            self._end.wait(self._draw.uniform(0.2, 4.0))
            worker.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Lets them end in order."""
        self._end.set()
        self._thread.join()
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in self.workers:
            worker.wait(60)


@contextmanager
def crowd(settings: Settings, seed: int) -> Iterator[Crowd]:
    """A disturbed crowd of workers."""
    made = Crowd(settings, seed)
    try:
        yield made
    finally:
        made.close()


def test_no_update_is_lost_and_tokens_grow_whatever_happens_to_the_workers(settings: Settings, tmp_path: Path) -> None:
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        client = Client(deployment=deployment)
        jobs = [
            Submission("turn", {"side": side, "number": number}, f"side:{side}", f"turn-{side}-{number}")
            for number in range(TURNS // 2)
            for side in sides()
        ]
        client.submit_many(jobs)
        with crowd(settings, seed=TURNS) as disturbed:

            def all_done() -> bool:
                with Past(deployment) as past:
                    return past.aggregate("counter:c").data.get("n") == TURNS

            # A look costs the workers a good part of a core for a moment: some thousand looks are enough for any run.
            limit = float(os.environ.get("REWINDQ_CHAOS_TIMEOUT", "180"))
            wait_until(all_done, f"{TURNS} turns are taken", limit, every=max(0.1, TURNS / 2000))
        print(f"{TURNS} turns, disturbed by {disturbed.done}")
        arguments = [settings.log, settings.namespace, str(settings.state_dir), "yes"]
        subprocess.run(
            [sys.executable, "-m", "tests.support.counter_app", *arguments], cwd=ROOT, check=True, timeout=120
        )
        report = verify(deployment)
        assert report["violations"] == []
        assert report["by_status"] == {"succeeded": TURNS}
        check_tokens_and_refusals(deployment)


def check_tokens_and_refusals(deployment: Deployment) -> None:
    """Tokens of the counter grow strictly, and who was refused a write at its home was told so or is gone."""
    tokens: list[int] = []
    with Past(deployment) as past:
        counter = past.aggregate("counter:c")
        assert counter.data["n"] == TURNS
        assert counter.version == TURNS, "each turn wrote once"
        for topic in (deployment.topics.lifecycle, deployment.topics.domain):
            end = deployment.log.bounds(topic, HOME)[1]
            reader = deployment.log.reader({(topic, HOME): 0})
            while reader.position(topic, HOME) < end:
                for raw in reader.poll(1000, 1.0):
                    record = deployment.codec.decode(raw.value)
                    granted = [ev.fencing_token for ev in record.events if isinstance(ev.body, e.LeaseAcquired)]
                    tokens += [token for token in granted if token is not None]
            reader.close()
    assert tokens == sorted(set(tokens))
    assert len(tokens) >= TURNS
