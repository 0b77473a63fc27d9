"""`rewindq worker` processes on the slow app: started, watched by log lines, stopped, and their summaries read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.payments import ROOT, append_jobs, wait_until

from rewindq.engine.core import events as e
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import read_from
from rewindq.engine.runtime.settings import Settings


class Running:
    """A worker process; its log lines are in `told`."""

    def __init__(self, settings: Settings, ledger: Path, *options: str) -> None:
        app = "tests.support.slow_app:app"
        command = [sys.executable, "-m", "rewindq.tools.cli", "worker", "--app", app, "--json", *options]
        given = {"LOG": settings.log, "NAMESPACE": settings.namespace, "STATE_DIR": str(settings.state_dir)}
        environment = {**os.environ, **{f"REWINDQ_{name}": value for name, value in given.items()}}
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "LEDGER": str(ledger), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)
        self.process.stderr.close()

    def says(self, text: str) -> bool:
        """Whether a log line holds this."""
        return any(text in line for line in self.told)

    def await_line(self, text: str, seconds: float = 40) -> None:
        """Waits for a log line."""
        wait_until(lambda: self.says(text) or self.process.poll() is not None, f"{text!r} in {self.told}", seconds)
        assert self.says(text), self.told

    @property
    def complaints(self) -> list[str]:
        """Log lines above INFO."""
        return [line for line in self.told if re.search(r"\[(warning|error|critical)|WARNING|ERROR|Traceback", line)]

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> dict[str, Any]:
        """Ends the process with a signal; its summary."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.end(seconds)

    def end(self, seconds: float = 60) -> dict[str, Any]:
        """Waits for the process's end; its summary, empty where it could not tell one."""
        assert self.process.stdout is not None
        self.process.wait(seconds)
        self._reading.join(10)
        out = self.process.stdout.read()
        self.process.stdout.close()
        return dict(json.loads(out)) if out else {}

    def kill(self) -> None:
        """At a test's end, whatever happened."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def submit_work(settings: Settings, seconds: list[float]) -> None:
    """One job of the slow app for each duration, straight onto the jobs topic."""
    payloads = [{"number": number, "seconds": duration} for number, duration in enumerate(seconds)]
    append_jobs(settings, "work", payloads, [f"work:{number}" for number in range(len(seconds))])


def records(settings: Settings) -> list[e.EventRecord]:
    """All records of the lifecycle topic, partition by partition."""
    with Deployment.open(settings) as deployment:
        topic, found = deployment.topics.lifecycle, []
        for partition in range(deployment.partitions):
            low, _ = deployment.log.bounds(topic, partition)
            found += [deployment.codec.decode(r.value or b"") for r in read_from(deployment, topic, partition, low)]
        return found


def event_counts(settings: Settings) -> Counter[str]:
    """How often each event type stands on the lifecycle topic."""
    return Counter(type(event.body).__name__ for record in records(settings) for event in record.events)
