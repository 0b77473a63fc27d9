"""Worker processes: one event loop each, a supervisor over several, orderly ends on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import IO

import structlog

from rewindq.engine.ports.log import LogError
from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.keeping import check_keeping
from rewindq.engine.runtime.settings import Settings, SettingsError

from .report import Report, WorkerOptions
from .worker import Worker

log = structlog.get_logger(__name__)

#: A child that died is started again after this many seconds; it is given up when it dies too often.
RESTART_DELAY = 0.5
RESTARTS_MAX = 20
#: Deaths count together within so many seconds.
RESTARTS_WITHIN = 600.0
#: So many looks in a row must find all workers idle.
IDLE_ROUNDS = 3
GC_THRESHOLDS = (50_000, 20, 50)
#: A child reports to the supervisor this often, in seconds.
REPORT_EVERY = 0.1


@dataclass(frozen=True)
class DaemonOptions:
    """What the `worker` command asks for."""

    app: str
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    until_idle: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"


def run_worker(settings: Settings, options: DaemonOptions, reports: IO[str] | None = None) -> Report:
    """Runs one worker process until it is stopped or idle; returns what it did.

    With `reports`, lines of JSON about its state are written there and the supervisor decides when it ends.
    """
    loaded = load_app(options.app)
    # Events are many and short-lived, and hold no cycles: with the usual thresholds the collector takes a tenth of the
    # time of a busy worker.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        deployment.check_state_folder()
        keeping = check_keeping(deployment)
        if settings.keep_keys is not None:
            (log.info if keeping.ok else log.warning)("effects' keys expire", policy=keeping.told)
        worker = Worker(deployment, loaded, options.worker)
        if options.metrics_port is not None:
            serve_metrics(options.metrics_host, options.metrics_port, lambda: worker.report)
        return asyncio.run(_run(worker, options, reports))


async def _run(worker: Worker, options: DaemonOptions, reports: IO[str] | None) -> Report:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    telling = loop.create_task(_tell(worker, reports)) if reports is not None else None
    try:
        alone = options.until_idle and reports is None
        return await worker.run((lambda report: report.idle) if alone else None)
    finally:
        if telling is not None:
            telling.cancel()
            _write(worker.report, reports)


async def _tell(worker: Worker, reports: IO[str] | None) -> None:
    while _write(worker.report, reports):
        await asyncio.sleep(REPORT_EVERY)
    log.warning("the supervisor is gone; ending in order")
    worker.stop()


def _write(report: Report, reports: IO[str] | None) -> bool:
    """Whether somebody reads it."""
    if reports is None:
        return True
    try:
        reports.write(json.dumps(vars(report)) + "\n")
        reports.flush()
    except BrokenPipeError:
        return False
    return True


def serve_metrics(host: str, port: int, report: Callable[[], Report]) -> None:
    """Serves the worker's counters for Prometheus at `http://host:port/metrics`, until the process ends.

    Raises SettingsError when the address cannot be had.
    """
    from prometheus_client import REGISTRY, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Collector:
        def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
            now = report()
            jobs = CounterMetricFamily("rewindq_attempts", "Attempts that ended", labels=["outcome"])
            jobs.add_metric(["succeeded"], now.succeeded)
            jobs.add_metric(["failed"], now.failed)
            jobs.add_metric(["retried"], now.retried)
            return [
                jobs,
                CounterMetricFamily("rewindq_turns", "Commits to the log", value=now.turns),
                CounterMetricFamily("rewindq_records", "Records appended", value=now.records),
                GaugeMetricFamily("rewindq_partitions_owned", "Partitions owned", value=now.owned),
                GaugeMetricFamily("rewindq_partitions_stopped", "Partitions that stand still", value=len(now.stopped)),
                GaugeMetricFamily("rewindq_jobs_unparked", "Parked, not on the topic yet", value=now.unparked),
                GaugeMetricFamily("rewindq_jobs_held", "Jobs held by a quarantine", value=now.held),
            ]

    try:
        start_http_server(port, addr=host)
    except OSError as error:
        raise SettingsError(
            f"metrics cannot be served at {host}:{port} ({error.strerror}): name another address"
        ) from error
    REGISTRY.register(Collector())


class _Child:
    """A worker process and what it last reported."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        read, write = os.pipe()
        self.process = subprocess.Popen([*command, "--report-fd", str(write)], pass_fds=(write,))
        os.close(write)
        os.set_blocking(read, False)
        self.fd = read
        self.report = Report()
        self.silent = False
        self._tail = b""

    def read(self) -> bool:
        """Takes in what the child has reported; False when there is nothing more for now."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return False
        self.silent = not data
        self._tail += data
        *lines, self._tail = self._tail.split(b"\n")
        if lines:
            self.report = Report(**json.loads(lines[-1]))
        return not self.silent

    def close(self) -> None:
        os.close(self.fd)


class Supervisor:
    """Keeps several worker processes running; a killed one is started again.

    `tally` counts what workers did that were killed, by their ids; what they last told may be less than they did.
    """

    def __init__(
        self,
        commands: Sequence[list[str]],
        *,
        until_idle: bool,
        partitions: int,
        tally: Callable[[Collection[str]], Report],
    ) -> None:
        self._commands = commands
        self._until_idle = until_idle
        self._partitions = partitions
        self._tally = tally
        self._stopping = False
        self._ended = Report()
        self._killed: list[_Child] = []
        self._restarts: deque[float] = deque(maxlen=RESTARTS_MAX)

    def run(self) -> Report:
        """Runs until stopped, or until all are idle. Returns the sum of what the children did.

        Raises SystemExit when children die again and again; the others are ended first.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        children = [_Child(command) for command in self._commands]
        try:
            idle_rounds = 0
            while not self._stopping and idle_rounds <= IDLE_ROUNDS:
                _read_all(children, REPORT_EVERY)
                self._replace_dead(children)
                idle_rounds = idle_rounds + 1 if self._until_idle and self._all_idle(children) else 0
        finally:
            # Told while they still own their partitions: afterwards nobody holds anything.
            self._ended.held = sum(child.report.held for child in children)
            self._ended.unparked = sum(child.report.unparked for child in children)
            self._ended.stopped = [why for child in children for why in child.report.stopped]
            self._end(children)
        self._count_killed()
        return self._ended

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _all_idle(self, children: list[_Child]) -> bool:
        assigned = [child.report.owned + len(child.report.stopped) for child in children]
        idle = (child.report.idle or not some for child, some in zip(children, assigned, strict=True))
        return sum(assigned) >= self._partitions and all(idle)

    def _replace_dead(self, children: list[_Child]) -> None:
        for place, child in enumerate(children):
            code = child.process.poll()
            if code is None or self._stopping:
                continue
            now = time.monotonic()
            if code == 2 or (len(self._restarts) == RESTARTS_MAX and now - self._restarts[0] < RESTARTS_WITHIN):
                log.error("a worker process died again; giving up", pid=child.process.pid, code=code)
                raise SystemExit(code if code > 0 else 1)
            died = signal.Signals(-code).name if code < 0 else code
            log.warning("a worker process died; starting another", worker=child.report.worker, by=died)
            self._restarts.append(now)
            self._account(child)
            time.sleep(RESTART_DELAY)
            children[place] = _Child(child.command)

    def _end(self, children: list[_Child]) -> None:
        for child in children:
            child.process.send_signal(signal.SIGTERM)
        while any(child.process.poll() is None for child in children):
            _read_all(children, REPORT_EVERY)  # one whose reports nobody reads would stand still
        for child in children:
            self._account(child)

    def _account(self, child: _Child) -> None:
        while child.read():
            pass
        child.close()
        if child.process.poll() == 0:
            self._ended.add(child.report)
        elif child.report.worker:
            self._killed.append(child)

    def _count_killed(self) -> None:
        if not self._killed:
            return
        told = Report()
        for child in self._killed:
            told.add(child.report)
        try:
            counted = self._tally([child.report.worker for child in self._killed])
        except LogError as error:
            log.warning("killed workers may have done more than they told; `rewindq jobs list` knows", error=str(error))
            self._ended.at_least = True
        else:
            told.succeeded, told.failed, told.retried = counted.succeeded, counted.failed, counted.retried
        self._ended.add(told)


def _read_all(children: list[_Child], seconds: float) -> None:
    readable, _, _ = select.select([child.fd for child in children if not child.silent], [], [], seconds)
    for child in children:
        if child.fd in readable:
            child.read()


def child_command(arguments: list[str]) -> list[str]:
    """How a worker process is started: this same program, as one process."""
    return [sys.executable, "-m", "rewindq.tools.cli", *arguments]
