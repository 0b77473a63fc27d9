"""`python -m rewindq.tools.bench WHAT …`: measures and prints; nothing here is a test.

drain    full queue -> idle worker processes (whole-process wall and CPU, bytes of log and store)
submit   the client, in batches and one by one
latency  submit to readable success, at light load
fork     a new branch over few and many aggregates
fold     replay by folding into new stores
memory   a worker's resident memory while it drains
leases   until a free lease is held, at home and on another partition
records  one event a record against one record a decision
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import drain, latency, leases, load, memory, past, records
from .measure import spread


def main() -> None:
    """Parses the command line and runs one measurement."""
    parser = argparse.ArgumentParser(prog="python -m rewindq.tools.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=sorted(MEASUREMENTS))
    parser.add_argument("--log", help="kafka://host:port; default: an embedded log in a temporary folder")
    parser.add_argument("--kind", default="noop", choices=["noop", "order", "stock"])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=50.0, help="latency: jobs a second")
    parser.add_argument("--aggregates", type=int, nargs="+", default=[1_000, 1_000_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rewindq-bench-") as folder:
        MEASUREMENTS[options.what](options, Path(folder))


def _drain(options: argparse.Namespace, folder: Path) -> None:
    runs = [
        drain.drain(
            drain.fresh(folder, options.log, number),
            options.kind,
            options.jobs,
            options.processes,
            options.concurrency,
        )
        for number in range(options.runs)
    ]
    title = f"{options.jobs:,} {options.kind} jobs, {options.processes} process(es), {options.log or 'embedded log'}"
    drain.report(title, runs)


def _submit(options: argparse.Namespace, folder: Path) -> None:
    batch, single = [], []
    for number in range(options.runs):
        place = drain.fresh(folder, options.log, number)
        batch.append(load.fill(place, options.kind, options.jobs))
        single.append(load.submit_each(place, options.kind, max(1, options.jobs // 10)))
    print(f"batches {spread(batch)} jobs/s, one by one {spread(single)} jobs/s")


def _latency(options: argparse.Namespace, folder: Path) -> None:
    for number in range(options.runs):
        found = sorted(latency.latency(drain.fresh(folder, options.log, number), drain.APP, options.jobs, options.rate))
        middle, high = found[len(found) // 2], found[int(len(found) * 0.99)]
        what = f"{len(found)} jobs at {options.rate:g}/s"
        print(f"{what}: median {middle:.2f} ms, p99 {high:.2f} ms, max {found[-1]:.2f} ms")


def _fork(options: argparse.Namespace, folder: Path) -> None:
    for count in options.aggregates:
        took, added = past.fork(folder / f"a{count}", count)
        print(f"{count:>9,} aggregates: fork {spread(took)} ms, adds {max(added):,} bytes")


def _fold(options: argparse.Namespace, folder: Path) -> None:
    place = drain.fresh(folder, options.log, 0)
    drain.drain(place, options.kind, options.jobs, options.processes, options.concurrency)
    found = [past.rebuild(place) for _ in range(options.runs)]
    print(f"{found[0][0]:,} events folded into new stores: {spread([rate for _, rate in found])} events/s")


def _memory(options: argparse.Namespace, folder: Path) -> None:
    for jobs, mib in memory.growth(drain.fresh(folder, options.log, 0), drain.APP, options.jobs):
        print(f"{jobs:>10,} jobs done: {mib:7.1f} MiB resident")


def _leases(options: argparse.Namespace, folder: Path) -> None:
    for number, remote in enumerate((False, True)):
        found = sorted(leases.acquire(drain.fresh(folder, options.log, number), drain.APP, options.jobs, remote=remote))
        where = "on another partition" if remote else "at home"
        middle, high = found[len(found) // 2], found[int(len(found) * 0.99)]
        print(f"{len(found)} leases {where}: median {middle:.2f} ms, p99 {high:.2f} ms")


def _records(options: argparse.Namespace, folder: Path) -> None:
    for count, form, size, encode, decode in records.compare():
        print(f"{count} events, {form:10}: {size:5} bytes, encode {encode:6.1f} µs, decode {decode:6.1f} µs")


MEASUREMENTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "drain": _drain,
    "submit": _submit,
    "latency": _latency,
    "leases": _leases,
    "fork": _fork,
    "fold": _fold,
    "memory": _memory,
    "records": _records,
}

if __name__ == "__main__":
    main()
