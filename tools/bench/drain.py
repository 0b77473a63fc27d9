"""How fast workers drain a full queue: wall and CPU of the whole command, start and end included."""

from __future__ import annotations

import sys
from pathlib import Path

from .load import Place, fill
from .measure import disk_bytes, median, rewindq, run, spread

APP = "rewindq.tools.bench.apps:app"


def drain(place: Place, kind: str, count: int, processes: int, concurrency: int) -> dict[str, float]:
    """Fills the queue, runs a worker until it is idle, returns figures. An empty run before it gives the start-up."""
    worker = rewindq(
        *place.arguments, "worker", "--app", APP, "--processes", str(processes), "--until-idle",
        "--concurrency", str(concurrency), "--json",
    )  # fmt: skip
    warm = run(worker, log=place.folder / "warm.log")
    enqueue = fill(place, kind, count)
    submitted = disk_bytes(place.folder)
    cost = run(worker, log=place.folder / "worker.log")
    return {
        "jobs/s": count / (cost.wall - warm.wall),
        "jobs/s with start-up": count / cost.wall,
        "CPU ms/job": 1000 * (cost.cpu - warm.cpu) / count,
        "bytes/job": disk_bytes(place.folder) / count,
        "of it submitted": submitted / count,
        "enqueue/s": enqueue,
        "peak MiB": cost.peak_mib,
        "start-up s": warm.wall,
    }


def report(title: str, runs: list[dict[str, float]]) -> None:
    """Prints each figure's median and spread."""
    print(f"\n{title}, {len(runs)} runs")
    for name in runs[0]:
        print(f"  {name:22} {spread([r[name] for r in runs])}")
    sys.stdout.flush()


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Each figure's median."""
    return {name: median(r[name] for r in runs) for name in runs[0]}


def fresh(folder: Path, log: str | None, number: int) -> Place:
    """A new place: a folder of its own, or on Kafka a namespace of its own."""
    own = folder / f"run-{number}"
    own.mkdir(parents=True)
    return Place(log or f"sqlite:///{own}/log.db", own, "rewindq" if log is None else f"bench-{folder.name}-{number}")
