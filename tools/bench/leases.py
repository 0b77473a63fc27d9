"""How long it takes to hold a free lease: at home, and on another partition. One job at a time."""

from __future__ import annotations

from rewindq.engine.runtime.client import Submission

from .apps import elsewhere
from .load import Place
from .measure import rewindq, run


def acquire(place: Place, app: str, jobs: int, *, remote: bool) -> list[float]:
    """Milliseconds of each acquisition, in order of submission."""
    with place.client() as client:
        for number in range(jobs):
            key = f"order:{number}"
            resource = f"stock:{elsewhere(key, 'stock')}" if remote else key
            client.submit_many([Submission("lease", {"resource": resource}, key, f"lease-{number}")])
        worker = rewindq(*place.arguments, "worker", "--app", app, "--until-idle", "--concurrency", "1", "--json")
        run(worker, log=place.folder / "worker.log")
        return [client.result(f"lease-{number}", timeout=0) for number in range(jobs)]
