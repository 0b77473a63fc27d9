"""`rewindq submit`: produces jobs to the jobs topic, one from the command line or many from a file of JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.console import Console

from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.client import ENDED, Client, Receipt, Submission, SubmissionRefused
from rewindq.engine.runtime.show import job_shown, value_shown
from rewindq.engine.runtime.submitting import Content, Prepared

from .errors import FAILED, CommandFailed
from .jsonlines import Line, LineRefused, read_lines, template
from .options import Call, command
from .output import tell
from .tables import print_value

#: Lines that are appended at once.
_BATCH = 1000
_EXAMPLE = """for example: rewindq submit place_order --payload '{"order_id": 7}'"""

#: Ids that were sent, with what they were sent for.
Waited: TypeAlias = list[tuple[str, Content]]


class Many(NamedTuple):
    """What became of a file: how many jobs were submitted, the first and the last of them."""

    submitted: int
    first: Receipt | None
    last: Receipt | None


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "submit")(submit)


def submit(
    call: Call,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="The job type: a handler's name.")],
    source: Annotated[
        str | None, typer.Argument(metavar="[-]", help="A single - reads JSON lines from standard input, as --file.")
    ] = None,
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help="The payload, an object.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="F.jsonl",
            help="JSON lines, one job a line: its payload, or an object that has only the keys payload and, where "
            'wanted, key, id, delay, priority: {"payload": {...}, "id": "order-7"}.',
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="K", help="Partition key; {field} takes a payload's field.")
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Job id: the same id twice is one job. {field} as in --key."),
    ] = None,
    delay: Annotated[
        str, typer.Option("--delay", metavar="S", help="Not before so many seconds from now, or 5m, 2h, 1d.")
    ] = "0",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="-1000 to 1000; higher runs first.")] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Waits for the jobs' ends; fails unless all succeed.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", help="Longest --wait, in seconds.")] = 600.0,
    app: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:ATTR", help="Checks payloads against this app's models before sending."),
    ] = None,
) -> None:
    """Submits jobs. What was sent is durable when the command returns; an id that is known already is no new job.

    Example: rewindq submit place_order --payload '{"order_id": 7}' --id order-7

    Example: rewindq submit place_order --file orders.jsonl --key 'customer:{customer_id}' --id 'order-{order_id}'
    """
    if source not in (None, "-"):
        raise typer.BadParameter(f"{source!r}: write - for standard input; a payload is given with --payload")
    if sum(one is not None for one in (source, payload, file)) != 1:
        raise typer.BadParameter(f"give one of --payload, --file and -; {_EXAMPLE}")
    if source is not None and sys.stdin.isatty():
        raise typer.BadParameter(f"- reads standard input, which is a terminal: pipe JSON lines into it; {_EXAMPLE}")
    loaded = load_app(app).app if app is not None else None
    common = Submission(type_, {}, key, job_id, delay, priority)
    with call.deployment(create=True) as deployment, Client(deployment=deployment, app=loaded) as client:
        if payload is not None:
            _submit_one(call, client, common, payload, timeout if wait else None)
        else:
            _submit_many(call, client, common, file, timeout if wait else None)


def _submit_one(call: Call, client: Client, common: Submission, payload: str, timeout: float | None) -> None:
    try:
        value = values.parse_json(payload)
    except values.JsonRefused as error:
        raise SubmissionRefused(f"--payload is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise SubmissionRefused(f"--payload must be a JSON object, got {type(value).__name__}")
    prepared = client.prepare(_filled(common, value))
    receipt = client.send([prepared])[0]
    shown: dict[str, Any] = {"jobs": [receipt._asdict()]}
    if timeout is not None:
        shown["jobs"][0] |= _await(client, prepared.job_id, prepared.content, timeout)

    def human(console: Console) -> None:
        job = shown["jobs"][0]
        # What becomes of it is a worker's decision: an id that is known already is no new job.
        status = "sent" if job.get("id_conflict") else job.get("status", "sent")
        where = f"(partition {receipt.partition}, offset {receipt.offset})"
        console.print(f"{receipt.job_id} {status} {where}", markup=False)
        if status == s.SUCCEEDED:
            print_value(console, job["result"])

    call.show(shown, human)
    if timeout is not None:
        _exit_unless_succeeded(shown["jobs"], timeout)


def _filled(common: Submission, payload: Mapping[str, Any]) -> Submission:
    """The submission of one payload, its key and id made from their templates."""
    return common._replace(
        payload=payload, key=template("--key", common.key, payload), job_id=template("--id", common.job_id, payload)
    )


def _await(client: Client, job_id: str, content: Content, timeout: float) -> dict[str, Any]:
    """The job as it is when it has ended, or after `timeout` seconds, with its result.

    `id_conflict`: the id belongs to a job of other content. The wait ends there, and what is shown is that job.
    """
    known = client.past.accepted(job_id)
    if known is None or not content.conflicts(known.head):
        known = client.wait(job_id, timeout)
    job = job_shown(known)
    # As long as none is accepted, nobody knows yet which of several submissions will be the job.
    job["id_conflict"] = client.past.accepted(job_id) is not None and content.conflicts(known.head)
    if known.state.status == s.SUCCEEDED:
        job["result"] = value_shown(known.state.result)
    return job


def _exit_unless_succeeded(jobs: list[dict[str, Any]], timeout: float) -> None:
    for job in jobs:
        if job["id_conflict"]:
            tell(
                f"error: job id {job['job_id']} belongs to an earlier job with other content (it is {job['status']}): "
                "what was sent now is never run; give it another --id"
            )
        elif job["status"] not in ENDED:
            tell(f"error: job {job['job_id']} did not end within {timeout:g} s: it is {job['status']}")
    if any(not _succeeded(job) for job in jobs):
        raise typer.Exit(FAILED)


def _succeeded(job: dict[str, Any]) -> bool:
    return job["status"] == s.SUCCEEDED and not job["id_conflict"]


def _submit_many(call: Call, client: Client, common: Submission, file: Path | None, timeout: float | None) -> None:
    waited: Waited = []
    many = _stream(call, client, common, file, waited if timeout is not None else None)
    shown: dict[str, Any] = {
        "submitted": many.submitted,
        "first": many.first._asdict() if many.first is not None else None,
        "last": many.last._asdict() if many.last is not None else None,
    }
    if timeout is not None:
        jobs = _await_all(client, waited, timeout)
        shown["succeeded"] = sum(map(_succeeded, jobs))
        shown["not_succeeded"] = [job for job in jobs if not _succeeded(job)]

    def human(console: Console) -> None:
        span = f" ({many.first.job_id} to {many.last.job_id})" if many.first and many.last else ""
        console.print(f"{many.submitted} jobs sent{span}", markup=False)
        if timeout is not None:
            console.print(f"{shown['succeeded']} succeeded, {len(shown['not_succeeded'])} did not", markup=False)

    call.show(shown, human)
    if timeout is not None:
        _exit_unless_succeeded(shown["not_succeeded"], timeout)


def _await_all(client: Client, waited: Waited, timeout: float) -> list[dict[str, Any]]:
    clock = client.deployment.clock
    deadline = clock.monotonic() + timeout
    return [_await(client, *one, max(0.0, deadline - clock.monotonic())) for one in waited]


def _stream(call: Call, client: Client, common: Submission, file: Path | None, waited: Waited | None) -> Many:
    """Sends a file's lines in batches; a bad line ends it, and what stands before it stays sent."""
    many = Many(0, None, None)
    batch: list[Prepared] = []
    try:
        for line in read_lines(file, sys.stdin.buffer, call.progress):
            try:
                batch.append(client.prepare(_of_line(common, line)))
            except ValueError as error:  # all refusals of a value or field are ValueErrors
                raise LineRefused(line.number, str(error)) from error
            if len(batch) == _BATCH:
                many = _send(client, many, batch, waited)
                batch = []
    except LineRefused as error:
        many = _send(client, many, batch, waited)
        raise CommandFailed(f"{file or 'standard input'} {error}; {_so_far(many.submitted, common)}") from error
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error}; {_so_far(many.submitted, common)}") from error
    return _send(client, many, batch, waited)


def _of_line(common: Submission, line: Line) -> Submission:
    filled = _filled(common, line.payload)
    return filled._replace(
        key=line.fields.get("key", filled.key),
        job_id=line.fields.get("id", filled.job_id),
        delay=line.fields.get("delay", filled.delay),
        priority=line.fields.get("priority", filled.priority),
    )


def _send(client: Client, many: Many, batch: list[Prepared], waited: Waited | None) -> Many:
    if not batch:
        return many
    receipts = client.send(batch)
    if waited is not None:
        waited.extend((one.job_id, one.content) for one in batch)
    return Many(many.submitted + len(receipts), many.first or receipts[0], receipts[-1])


def _so_far(count: int, common: Submission) -> str:
    again = (
        "since ids are given, the same command is safe to repeat once the line is right"
        if common.job_id is not None
        else "without --id a repeated command sends them again, so go on behind them"
    )
    return f"{count} jobs were sent before it; {again}"
