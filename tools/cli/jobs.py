"""`rewindq jobs`: lists and shows jobs, cancels them, sends them back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from rewindq.engine.core import state as s
from rewindq.engine.core.times import parse_time
from rewindq.engine.runtime.client import ENDED, Client
from rewindq.engine.runtime.commands import DONE, KEPT, REFUSED, CommandOutcome, workers_running
from rewindq.engine.runtime.past import JobFilter, Past
from rewindq.engine.runtime.quarantines import Quarantines
from rewindq.engine.runtime.show import job_shown
from rewindq.engine.runtime.trace import job_detail

from .errors import GuardRefused
from .options import Call, command
from .program import Group
from .tables import cell, print_table, print_value, short, short_time

STATUSES = (s.WAITING, s.DELAYED, s.RUNNING, s.RETRYING, s.SUCCEEDED, s.INVESTIGATION, s.CANCELLED)

JobArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="R", help="Why; it stays in the job's trace.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Longest wait for a worker to carry it out, in seconds.")
]

RequestOption = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="ID",
        help="A name for this request: given again under it, the command is carried out once and has one result.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    jobs = typer.Typer(
        name="jobs", cls=Group, help="Lists and shows jobs, cancels them, sends them back.", no_args_is_help=True
    )
    command(jobs, "list")(list_jobs)
    command(jobs, "show")(show_job)
    command(jobs, "cancel")(cancel)
    command(jobs, "retry")(retry)
    app.add_typer(jobs)


@contextlib.contextmanager
def open_past(call: Call) -> Iterator[Past]:
    """The past of the call's deployment; a fold that takes long shows its progress on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=call.progress, transient=True, disable=not call.progress.is_terminal)
    with call.deployment() as deployment, bar as progress:
        task = progress.add_task("reading")

        def told(partition: int, events: int) -> None:
            progress.update(task, description=f"partition {partition}: {events} events folded")

        with Past(deployment, told) as past:
            yield past


def list_jobs(
    call: Call,
    status: Annotated[str | None, typer.Option("--status", metavar="S", help=f"One of {', '.join(STATUSES)}.")] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="T", help="The job type.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", metavar="R", help="For example order:7.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="Submitted then or later, RFC 3339 in UTC.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many, the newest.")] = 100,
) -> None:
    """Lists jobs over all partitions, newest first; those that no worker has taken in yet are among them.

    Example: rewindq jobs list --status investigation --since 2026-11-29T00:00:00Z
    """
    if status is not None and status not in STATUSES:
        raise typer.BadParameter(f"--status {status!r}: there are {', '.join(STATUSES)}")
    wanted = JobFilter(status, type_, resource, None if since is None else parse_time(since))
    with open_past(call) as past:
        found, total = past.jobs(wanted, limit)
        quarantines = Quarantines(past)
        jobs = [job_shown(one, quarantines) for one in found]
    call.show({"jobs": jobs, "total": total}, lambda console: _print_jobs(console, jobs, total))


def _print_jobs(console: Console, jobs: list[dict[str, Any]], total: int) -> None:
    headings = ("submitted", "status", "try", "type", "job", "remark")
    rows = (
        (
            short_time(job["submitted_at"]),
            job["status"],
            job["attempt"],
            job["type"],
            job["job_id"],
            short(_remark(job), 100),
        )
        for job in jobs
    )
    if jobs:
        print_table(console, headings, rows)
    console.print(f"{len(jobs)} of {total} jobs" if len(jobs) < total else f"{total} jobs")


def _remark(job: dict[str, Any]) -> str:
    """What a list says about a job: why it is held, what it waits for, else its failure."""
    return job["waits"] or _failure(job) if job["held"] is None else f"held: {job['held']}"


def _failure(job: dict[str, Any]) -> str:
    failure = job["failure"]
    if failure is None:
        return ""
    step = f" at {failure['step']}" if failure["step"] else ""
    return f"{failure['class']}{step}: {failure['reason']}"


def show_job(call: Call, job_id: JobArgument) -> None:
    """Shows one job with its attempts, payload (secrets masked) and result.

    Example: rewindq jobs show order-7
    """
    with open_past(call) as past:
        detail = job_detail(past, job_id)
        job = job_shown(past.find(job_id), Quarantines(past))
    call.show(job | detail, lambda console: _print_job(console, job, detail))


def _print_job(console: Console, job: dict[str, Any], detail: dict[str, Any]) -> None:
    console.print(f"{job['job_id']}  {job['type']}  ", end="", markup=False)
    print_status(console, job)
    facts = {
        "held": job["held"],
        "submitted": job["submitted_at"],
        "finished": job["finished_at"],
        "due": detail["due"],
        "key": detail["key"],
        "resource": job["resource"],
        "partition": job["partition"],
        "priority": detail["priority"] or None,
        "parent": detail["parent"],
        "waits": job["waits"],
        "failure": _failure(job) or None,
        "cancelled": detail["cancel_reason"],
        "duplicates": _duplicates(detail["duplicates"]),
    }
    for name, value in facts.items():
        if value is not None:
            console.print(f"  {name:10} {value}", markup=False)
    for name in ("payload", "result"):
        console.print(f"  {name}")
        print_value(console, detail[name])
    if detail["attempts"]:
        headings = ("attempt", "outcome", "began", "ms", "position", "worker")
        print_table(console, headings, map(_attempt_row, detail["attempts"]))
    for attempt in detail["attempts"]:
        if attempt["failure"] is not None:
            console.print(f"attempt {attempt['attempt']}  {_failure(attempt)}", markup=False)


def _duplicates(found: list[dict[str, Any]]) -> str | None:
    """How often the id was submitted again; other content under it was never run, and somebody may miss it."""
    other = [one["position"] for one in found if not one["same"]]
    if not found:
        return None
    text = f"submitted again {len(found)} times"
    return f"{text}, with other content that was never run at {', '.join(other)}" if other else text


def print_status(console: Console, job: dict[str, Any]) -> None:
    """A job's status in its colour, ending the line."""
    console.print(cell(job["status"]), f"(attempt {job['attempt']})")


def _attempt_row(attempt: dict[str, Any]) -> tuple[Any, ...]:
    return (
        attempt["attempt"],
        attempt["outcome"],
        short_time(attempt["started_at"]),
        attempt["duration_ms"],
        attempt["position"],
        attempt["worker"],
    )


def cancel(
    call: Call,
    job_id: JobArgument,
    reason: ReasonOption,
    timeout: TimeoutOption = 10.0,
    request_id: RequestOption = None,
) -> None:
    """Cancels a job. One that runs is stopped; a call that it was making is then in doubt, for a person.

    A job that no worker has taken in yet is cancelled when it is.

    Example: rewindq jobs cancel order-7 --reason 'ordered twice'
    """
    _command(call, Client.cancel, job_id, reason, timeout, request_id)


def retry(
    call: Call,
    job_id: JobArgument,
    reason: ReasonOption,
    timeout: TimeoutOption = 10.0,
    request_id: RequestOption = None,
) -> None:
    """Sends a job of the investigation queue back as a new attempt; its effects stay guarded by their keys.

    Example: rewindq jobs retry order-7 --reason 'gateway is back'
    """
    _command(call, Client.retry, job_id, reason, timeout, request_id)


def _command(
    call: Call,
    give: Callable[..., CommandOutcome],
    job_id: str,
    reason: str,
    timeout: float,
    request_id: str | None,
) -> None:
    if not reason.strip():
        raise typer.BadParameter("--reason must say why: it stays in the job's trace")
    with call.deployment() as deployment, Client(deployment=deployment) as client:
        running = workers_running(deployment)
        outcome = give(client, job_id, reason, timeout=timeout if running else 0, request_id=request_id)
        # A running job ends a moment after it was asked to, one that no worker had seen when it is taken in.
        cancelled = outcome.state in (DONE, KEPT) and give is Client.cancel
        job = job_shown(client.wait(job_id, timeout)) if cancelled else client.status(job_id)
    if outcome.state == REFUSED:
        raise GuardRefused(f"job {job_id}: {outcome.reason}")
    shown = job | {"command": {"id": outcome.command_id, "state": outcome.state}}
    call.show(shown, lambda console: _print_outcome(console, job, outcome, running))


def _print_outcome(console: Console, job: dict[str, Any], outcome: CommandOutcome, running: bool) -> None:
    console.print(f"{job['job_id']} is ", end="", markup=False)
    print_status(console, job)
    if job["held"] is not None:
        console.print(f"it is held: {job['held']}", markup=False)
    if outcome.state == KEPT and job["status"] not in ENDED:
        console.print(
            f"the command {outcome.command_id} is kept: the job is cancelled when it is taken in", markup=False
        )
    elif outcome.state not in (DONE, KEPT):
        why = "its partition's worker has not answered yet" if running else "no worker runs"
        console.print(f"the command {outcome.command_id} is queued: {why}", markup=False)
