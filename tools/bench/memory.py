"""A worker's resident memory while it works through a long queue."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from .load import Place, fill
from .measure import rewindq

#: Jobs submitted at a time, so that the queue itself stays short.
STEP = 50_000


def growth(place: Place, app: str, jobs: int) -> Iterator[tuple[int, float]]:
    """Pairs of jobs done so far and MiB resident, one a step."""
    with (place.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(rewindq(*place.arguments, "worker", "--app", app), stderr=log)
        try:
            with place.client() as client:
                for done in range(0, jobs, STEP):
                    fill(place, "noop", STEP, start=done)
                    client.result(f"noop-{done + STEP - 1}", timeout=600)
                    yield done + STEP, resident(worker.pid)
        finally:
            worker.terminate()
            worker.wait()


def resident(pid: int) -> float:
    """A process's resident memory in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20
