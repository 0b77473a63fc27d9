"""Machines with wall clocks of their own: worker processes of `skewed_worker`, a submitter, and what was done when."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ
from pathlib import Path

from tests.support.payments import ROOT
from tests.support.skewed_worker import Entry, app, entries

from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.clock import SystemClock
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

MINUTE = 60.0


class Machine:
    """A worker process and its wall clock, `ahead` seconds."""

    def __init__(self, settings: Settings, folder: Path, name: str, ahead: float) -> None:
        self.clock = folder / f"{name}-ahead"
        self.set(ahead)
        arguments = [settings.log, settings.namespace, str(settings.state_dir), str(self.clock)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.skewed_worker", *arguments],
            cwd=ROOT,
            env={**environ, "LEDGER": str(folder / "ledger")},
        )

    def set(self, ahead: float) -> None:
        """Sets the clock in one step."""
        draft = self.clock.with_suffix(".new")
        draft.write_text(str(ahead))
        draft.rename(self.clock)


class Submitter(SystemClock):
    """A third machine's clock."""

    def now_us(self) -> int:
        return super().now_us() - int(20 * MINUTE * 1e6)


class Scene:
    """Machines, a submitter, and what was done."""

    def __init__(self, settings: Settings, folder: Path, client: Client) -> None:
        self.settings, self.folder, self.client = settings, folder, client
        self.machines: list[Machine] = []
        self.due: dict[str, float] = {}

    def machine(self, name: str, ahead: float) -> Machine:
        self.machines.append(Machine(self.settings, self.folder, name, ahead))
        return self.machines[-1]

    def delay(self, *seconds: float) -> None:
        """Submits a delayed job for each."""
        for delay in seconds:
            job_id = f"in-{delay}-{len(self.due)}"
            self.due[job_id] = time.monotonic() + delay
            self.client.submit("delayed", {"name": job_id}, job_id=job_id, delay=delay)

    def done(self, what: str) -> list[Entry]:
        return [entry for entry in entries(self.folder / "ledger") if entry.what == what]

    def count(self, what: str, number: int) -> bool:
        return len(self.done(what)) >= number


@contextmanager
def scene(settings: Settings, folder: Path) -> Iterator[Scene]:
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        deployment.clock = Submitter()
        with Client(deployment=deployment, app=app) as client:
            made = Scene(settings, folder, client)
            try:
                yield made
            finally:
                for machine in made.machines:
                    machine.process.kill()
                    machine.process.wait()
