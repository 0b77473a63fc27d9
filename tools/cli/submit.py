"""`rewindq submit`: produces jobs to the jobs topic, one from the command line or many from a file of JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.client import ENDED, Client, Receipt, Submission, SubmissionRefused
from rewindq.engine.runtime.show import job_shown, value_shown

from .errors import CommandFailed
from .jsonlines import Line, LineRefused, read_lines, template
from .options import Call, command

#: Lines that are appended at once.
_BATCH = 1000


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
    """Submits jobs. What was submitted is durable when the command returns.

    Example: rewindq submit place_order --payload '{"order_id": 7}' --id order-7

    Example: rewindq submit place_order --file orders.jsonl --key 'customer:{customer_id}' --id 'order-{order_id}'
    """
    if source not in (None, "-"):
        raise typer.BadParameter(f"{source!r}: write - for standard input; a payload is given with --payload")
    if sum(one is not None for one in (source, payload, file)) > 1:
        raise typer.BadParameter("give one of --payload, --file and -")
    loaded = load_app(app).app if app is not None else None
    common = Submission(type_, {}, key, job_id, delay, priority)
    with call.deployment(create=True) as deployment, Client(deployment=deployment, app=loaded) as client:
        if file is None and source is None:
            _submit_one(call, client, common, payload, timeout if wait else None)
        else:
            _submit_many(call, client, common, file, timeout if wait else None)


def _submit_one(call: Call, client: Client, common: Submission, payload: str | None, timeout: float | None) -> None:
    try:
        value = values.parse_json(payload) if payload is not None else {}
    except values.JsonRefused as error:
        raise SubmissionRefused(f"--payload is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise SubmissionRefused(f"--payload must be a JSON object, got {type(value).__name__}")
    receipt = client.submit_many([_filled(common, value)])[0]
    shown: dict[str, Any] = {"jobs": [receipt._asdict()]}
    if timeout is not None:
        shown["jobs"][0] |= _await(client, receipt.job_id, timeout)

    def human(console: Console) -> None:
        status = shown["jobs"][0].get("status", "submitted")
        console.print(f"{receipt.job_id} {status} (partition {receipt.partition}, offset {receipt.offset})")
        if "result" in shown["jobs"][0]:
            console.print_json(data=shown["jobs"][0]["result"])

    call.show(shown, human)
    if timeout is not None:
        _exit_unless_succeeded(shown["jobs"], timeout)


def _filled(common: Submission, payload: Mapping[str, Any]) -> Submission:
    """The submission of one payload, its key and id made from their templates."""
    return common._replace(
        payload=payload, key=template("--key", common.key, payload), job_id=template("--id", common.job_id, payload)
    )


def _await(client: Client, job_id: str, timeout: float) -> dict[str, Any]:
    """The job as it is when it has ended, or after `timeout` seconds, with its result."""
    found = client.wait(job_id, timeout)
    job = job_shown(found)
    if found.state.status == s.SUCCEEDED:
        job["result"] = value_shown(found.state.result)
    return job


def _exit_unless_succeeded(jobs: list[dict[str, Any]], timeout: float) -> None:
    for job in jobs:
        if job["status"] not in ENDED:
            typer.echo(f"error: job {job['job_id']} did not end within {timeout:g} s: it is {job['status']}", err=True)
    if any(job["status"] != s.SUCCEEDED for job in jobs):
        raise typer.Exit(1)


def _submit_many(call: Call, client: Client, common: Submission, file: Path | None, timeout: float | None) -> None:
    waited: list[str] = []
    many = _stream(call, client, common, file, waited if timeout is not None else None)
    shown: dict[str, Any] = {
        "submitted": many.submitted,
        "first": many.first._asdict() if many.first is not None else None,
        "last": many.last._asdict() if many.last is not None else None,
    }
    if timeout is not None:
        jobs = _await_all(client, waited, timeout)
        shown["succeeded"] = sum(job["status"] == s.SUCCEEDED for job in jobs)
        shown["not_succeeded"] = [job for job in jobs if job["status"] != s.SUCCEEDED]

    def human(console: Console) -> None:
        span = f" ({many.first.job_id} to {many.last.job_id})" if many.first and many.last else ""
        console.print(f"{many.submitted} jobs submitted{span}", markup=False)
        if timeout is not None:
            console.print(f"{shown['succeeded']} succeeded, {len(shown['not_succeeded'])} did not", markup=False)

    call.show(shown, human)
    if timeout is not None:
        _exit_unless_succeeded(shown["not_succeeded"], timeout)


def _await_all(client: Client, job_ids: list[str], timeout: float) -> list[dict[str, Any]]:
    clock = client.deployment.clock
    deadline = clock.monotonic() + timeout
    return [_await(client, job_id, max(0.0, deadline - clock.monotonic())) for job_id in job_ids]


def _stream(call: Call, client: Client, common: Submission, file: Path | None, waited: list[str] | None) -> Many:
    """Submits a file's lines in batches; a bad line ends it, and what stands before it stays submitted."""
    many = Many(0, None, None)
    batch = []
    try:
        for line in read_lines(file, sys.stdin.buffer, call.progress):
            try:
                batch.append(client.prepare(_of_line(common, line)))
            except ValueError as error:  # all refusals of a value or field are ValueErrors
                raise LineRefused(line.number, str(error)) from error
            if len(batch) == _BATCH:
                many = _add(many, client.send(batch), waited)
                batch = []
    except LineRefused as error:
        many = _add(many, client.send(batch), waited)
        raise CommandFailed(f"{file or 'standard input'} {error}; {_so_far(many.submitted, common)}") from error
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error}; {_so_far(many.submitted, common)}") from error
    return _add(many, client.send(batch), waited)


def _of_line(common: Submission, line: Line) -> Submission:
    filled = _filled(common, line.payload)
    return filled._replace(
        key=line.fields.get("key", filled.key),
        job_id=line.fields.get("id", filled.job_id),
        delay=line.fields.get("delay", filled.delay),
        priority=line.fields.get("priority", filled.priority),
    )


def _add(many: Many, receipts: list[Receipt], waited: list[str] | None) -> Many:
    if not receipts:
        return many
    if waited is not None:
        waited.extend(receipt.job_id for receipt in receipts)
    return Many(many.submitted + len(receipts), many.first or receipts[0], receipts[-1])


def _so_far(count: int, common: Submission) -> str:
    again = (
        "since ids are given, the same command is safe to repeat once the line is right"
        if common.job_id is not None
        else "without --id a repeated command submits them again, so go on behind them"
    )
    return f"{count} jobs were submitted before it; {again}"
