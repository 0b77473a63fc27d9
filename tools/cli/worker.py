"""`rewindq worker`: runs a processor daemon, in one process or several."""

from __future__ import annotations

import logging
import os
import socket
from typing import Annotated

import typer

from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.daemon import DaemonOptions, Supervisor, child_command, run_worker
from rewindq.processors.worker.report import Report, WorkerOptions

from .options import Call, command, log_to_stderr


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "worker")(worker)


def worker(
    call: Call,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:ATTR", help="The app whose jobs to run; or REWINDQ_APP.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="N", help="Jobs at once a process.")
    ] = 100,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Worker processes.")] = 1,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Ends when nothing is waiting, delayed or running.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=1, max=65535, metavar="P", help="Serves Prometheus metrics (one process)."),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", metavar="HOST", help="Where metrics are served: 0.0.0.0 for other machines."),
    ] = "127.0.0.1",
    grace: Annotated[
        float, typer.Option("--grace", min=0, metavar="S", help="Seconds that running jobs have after SIGTERM.")
    ] = 10.0,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Shown to operators; the host's name by default.")
    ] = None,
    report_fd: Annotated[int | None, typer.Option("--report-fd", hidden=True)] = None,
) -> None:
    """Runs jobs until SIGTERM or SIGINT: then what runs is finished, or handed back after the grace.

    Example: rewindq worker --app shop.jobs:app --processes 2 --until-idle
    """
    log_to_stderr(logging.INFO)
    settings = call.settings(app=app)
    if settings.app is None:
        raise typer.BadParameter("give --app MODULE:ATTRIBUTE, set REWINDQ_APP, or app in rewindq.toml")
    if processes > 1 and metrics_port is not None:
        raise typer.BadParameter("--metrics-port serves one process: start one worker a port instead of --processes")
    options = DaemonOptions(
        settings.app,
        WorkerOptions(concurrency=concurrency, grace=grace, name=name or socket.gethostname()),
        until_idle,
        metrics_port,
        metrics_host,
    )
    if report_fd is not None:
        with os.fdopen(report_fd, "w") as reports:
            run_worker(settings, options, reports)
        return
    report = run_worker(settings, options) if processes == 1 else _supervise(call, settings, options, processes)
    shown = {
        name: getattr(report, name) for name in ("processed", "succeeded", "failed", "retried", "blocked", "unknown")
    }
    call.show(shown, lambda console: console.print(f"{report.processed} jobs: {_told(report)}"))


def _told(report: Report) -> str:
    told = f"{report.succeeded} succeeded, {report.failed} failed, {report.retried} attempts to be retried"
    told += f"; {report.blocked} wait behind a failed job of their resource" if report.blocked else ""
    return told + (f"; {report.unknown} wait for a worker that knows their type" if report.unknown else "")


def _supervise(call: Call, settings: Settings, options: DaemonOptions, processes: int) -> Report:
    """Runs children of this same program. They get the settings by the environment: addresses may hold passwords."""
    load_app(options.app)  # an app that cannot be loaded is told once, here
    with call.deployment() as deployment:
        deployment.ensure_topics()
        partitions = deployment.partitions
    for setting in ("log", "namespace", "state_dir", "blobs", "app"):
        value = getattr(settings, setting)
        if value is not None:
            os.environ[f"REWINDQ_{setting.upper()}"] = str(value)
    arguments = ["worker", "--concurrency", str(options.worker.concurrency), "--grace", str(options.worker.grace)]
    arguments += ["--name", options.worker.name]
    children = child_command(arguments)
    return Supervisor(children, processes, until_idle=options.until_idle, partitions=lambda: partitions).run()
