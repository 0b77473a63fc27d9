"""`rewindq worker`: runs a processor daemon, in one process or several."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Collection
from typing import Annotated, Any

import typer

from rewindq.engine.log.kafka.settings import parse, with_instance
from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.keeping import check_keeping
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.daemon import DaemonOptions, Supervisor, child_command, run_worker
from rewindq.processors.worker.report import Report, WorkerOptions
from rewindq.processors.worker.tally import Tally

from .errors import FAILED
from .options import Call, command, log_to_stderr

InstanceOption = Annotated[
    str | None,
    typer.Option(
        "--instance-id",
        metavar="ID",
        help="Static membership on Kafka: restarted within the session time-out, a worker keeps its partitions.",
    ),
]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", min=1, metavar="N", help="Jobs at once a process.")]
IdleOption = Annotated[
    bool, typer.Option("--until-idle", help="Ends when nothing but held jobs is waiting, delayed or running.")
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option("--metrics-port", min=1, max=65535, metavar="P", help="Serves Prometheus metrics (one process)."),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", metavar="HOST", help="Where metrics are served: 0.0.0.0 for other machines.")
]
KeepOption = Annotated[
    str | None,
    typer.Option("--keep-keys", metavar="TIME", help="Drops effects' answers so long (7d) after their job's end."),
]
GraceOption = Annotated[
    float, typer.Option("--grace", min=0, metavar="S", help="Seconds that running jobs have after SIGTERM.")
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "worker")(worker)


def worker(
    call: Call,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:ATTR", help="The app whose jobs to run; or REWINDQ_APP.")
    ] = None,
    concurrency: ConcurrencyOption = 100,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Worker processes.")] = 1,
    until_idle: IdleOption = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    grace: GraceOption = 10.0,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Shown to operators; the host's name by default.")
    ] = None,
    instance_id: InstanceOption = None,
    keep_keys: KeepOption = None,
    report_fd: Annotated[int | None, typer.Option("--report-fd", hidden=True)] = None,
) -> None:
    """Runs jobs until SIGTERM or SIGINT: then what runs is finished, or handed back after the grace.

    Example: rewindq worker --app shop.jobs:app --processes 2 --until-idle
    """
    log_to_stderr(logging.INFO)
    settings = call.settings(app=app, keep_keys=keep_keys)
    if settings.app is None:
        raise typer.BadParameter("give --app MODULE:ATTRIBUTE, set REWINDQ_APP, or app in rewindq.toml")
    if processes > 1 and metrics_port is not None:
        raise typer.BadParameter("--metrics-port serves one process: start one worker a port instead of --processes")
    place, instance = settings.app, _instance(settings, instance_id)
    if instance is not None and processes == 1:
        settings = settings.model_copy(update={"log": with_instance(settings.log, instance)})
    options = DaemonOptions(
        place,
        WorkerOptions(concurrency=concurrency, grace=grace, name=name or socket.gethostname()),
        until_idle,
        metrics_port,
        metrics_host,
    )
    if report_fd is not None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(report_fd, "w") as reports:
            run_worker(settings, options, reports)
        return
    several = processes > 1
    report = _supervise(call, settings, options, processes, instance) if several else run_worker(settings, options)
    call.show(_shown(report), lambda console: console.print(_told(report)))
    if report.stopped:
        raise typer.Exit(FAILED)


def _instance(settings: Settings, given: str | None) -> str | None:
    """The id for static membership, from the option or the address."""
    if settings.log.startswith("kafka:"):
        return given or parse(settings.log).instance
    if given is not None:
        raise typer.BadParameter("--instance-id is for Kafka: the embedded log sees at once which process has ended")
    return None


def _shown(report: Report) -> dict[str, Any]:
    names = ("processed", "succeeded", "failed", "retried", "held", "blocked", "unknown", "unparked")
    shown: dict[str, Any] = {name: getattr(report, name) for name in names}
    shown["stopped"] = report.stopped
    shown["handovers"] = {"count": report.handovers, "max_s": round(report.handover_max_s, 3)}
    return shown | ({"at_least": True} if report.at_least else {})


def _told(report: Report) -> str:
    jobs = f"at least {report.processed}" if report.at_least else str(report.processed)
    told = f"{jobs} jobs: {report.succeeded} succeeded, {report.failed} failed, {report.retried} attempts to be retried"
    if report.held:
        told += f", {report.held} held by a quarantine"
    told += f"; {report.blocked} wait behind a failed job of their resource" if report.blocked else ""
    told += f"; {report.unknown} wait for a worker that knows their type" if report.unknown else ""
    told += f"; {report.unparked} parked jobs wait for the investigation topic" if report.unparked else ""
    told += "".join(f"; stopped: {why}" for why in report.stopped)
    if not report.handovers:
        return told
    return f"{told}; partitions handed over {report.handovers} times, in {report.handover_max_s:.1f} s at most"


def _supervise(call: Call, settings: Settings, options: DaemonOptions, processes: int, instance: str | None) -> Report:
    """Runs children of this same program. They get the settings by the environment: addresses may hold passwords."""
    load_app(options.app)  # an app that cannot be loaded is told once, here
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        deployment.check_state_folder()
        check_keeping(deployment)
        partitions, tally = deployment.partitions, Tally(deployment)

    def count(workers: Collection[str]) -> Report:
        with call.deployment() as deployment:
            return tally.count(deployment, workers)

    for setting in ("log", "namespace", "state_dir", "blobs", "app", "keep_keys"):
        value = getattr(settings, setting)
        if value is not None:
            os.environ[f"REWINDQ_{setting.upper()}"] = str(value)
    arguments = ["worker", "--concurrency", str(options.worker.concurrency), "--grace", str(options.worker.grace)]
    arguments += ["--name", options.worker.name]
    # Two members of one id would push each other out of the group.
    own = [[] if instance is None else ["--instance-id", f"{instance}-{number}"] for number in range(1, processes + 1)]
    commands = [child_command([*arguments, *more]) for more in own]
    return Supervisor(commands, until_idle=options.until_idle, partitions=partitions, tally=count).run()
