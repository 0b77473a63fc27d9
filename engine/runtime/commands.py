"""Operators' commands: appended to the partition that has to carry them out, and what its worker answered."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.answered import DONE, KEPT, QUEUED, REFUSED, answer_of
from ..core.names import valid_job_id
from ..ports.log import Append, Reader
from ..store.commands import read_answer
from .deployment import Deployment
from .ids import new_id
from .past import FoundJob, Past

__all__ = ["DONE", "KEPT", "QUEUED", "REFUSED", "CommandOutcome", "CommandRefusedError"]


class CommandOutcome(NamedTuple):
    """What became of a command: done, refused (with the reason), kept until its job is taken in, or queued: no worker
    has answered yet.
    """

    command_id: str
    state: str
    reason: str | None = None


class CommandRefusedError(Exception):
    """The command makes no sense for the job as it is, so it was not sent. Names the job and its status."""


def cancel_job(
    past: Past, found: FoundJob, reason: str, actor: str | None, timeout: float, request_id: str | None = None
) -> CommandOutcome:
    """Asks for the job's end. Waits up to `timeout` seconds for the answer. Raises CommandRefusedError, ValueError.

    What was asked under the same `request_id` before is not asked again: its answer is given.
    """
    command_id = command_id_of(past.deployment, request_id, "cancel", found.job_id)
    known = answered(past, found.partition, found.job_id, command_id)
    if known is not None:
        return known
    if found.state.status in s.TERMINAL:
        raise CommandRefusedError(f"job {found.job_id} is {found.state.status} already: nothing is left to cancel")
    command = e.CancelCommand(command_id, checked_reason(reason), actor or operator())
    return send(past, found.partition, found.job_id, command, timeout)


def retry_job(
    past: Past, found: FoundJob, reason: str, actor: str | None, timeout: float, request_id: str | None = None
) -> CommandOutcome:
    """Sends a job back as a new attempt; as `cancel_job`."""
    command_id = command_id_of(past.deployment, request_id, "retry", found.job_id)
    known = answered(past, found.partition, found.job_id, command_id)
    if known is not None:
        return known
    if found.state.status != s.INVESTIGATION:
        raise CommandRefusedError(
            f"job {found.job_id} is {found.state.status}: only a job in investigation is sent back"
        )
    command = e.RetryCommand(command_id, checked_reason(reason), actor or operator())
    return send(past, found.partition, found.job_id, command, timeout)


def command_id_of(deployment: Deployment, request_id: str | None, *intent: str) -> str:
    """A command's id: a new one, or one made of the request's id and what is asked for.

    So one request id may stand for a whole script of commands. Raises ValueError.
    """
    if request_id is None:
        return new_id(deployment.clock)
    if not valid_job_id(request_id):
        raise ValueError(f"request id {request_id!r} must be 1 to 200 printable characters")
    return f"{request_id}/{values.digest(values.encode(list(intent)))[7:19]}"


def answered(past: Past, partition: int, job_id: str, command_id: str) -> CommandOutcome | None:
    """What was answered to a command about a job, as far as is known here."""
    found = read_answer(past.partition(partition).store, job_id, command_id)
    return None if found is None else CommandOutcome(command_id, found.state, found.reason)


def checked_reason(reason: str) -> str:
    """The reason, if there is one. Raises ValueError."""
    if not reason.strip():
        raise ValueError("a command needs a reason: it stays in the job's trace")
    return reason


def send(
    past: Past,
    partition: int,
    job_id: str,
    body: e.CancelCommand | e.RetryCommand | e.ResolveCommand,
    timeout: float,
) -> CommandOutcome:
    """Appends a command about a job of a partition, unless it was answered already; waits up to `timeout` seconds."""
    deployment = past.deployment
    place = (deployment.topics.lifecycle, partition)
    # Opened before the command is sent, so that its answer is never missed.
    reader = deployment.log.reader({place: deployment.log.bounds(*place)[1]})
    try:
        past.partition(partition).refresh()
        known = answered(past, partition, job_id, body.command_id)
        if known is not None:
            return known
        append_command(deployment, partition, job_id, body)
        return _answer(deployment, reader, body.command_id, timeout)
    finally:
        reader.close()


def append_command(deployment: Deployment, partition: int, job_id: str, body: e.Body) -> None:
    """Appends a command. Raises AppendRefused, OutcomeUnknown."""
    append_to_partitions(deployment, [partition], job_id, body)


def append_to_partitions(deployment: Deployment, partitions: Iterable[int], job_id: str, body: e.Body) -> None:
    """Appends the same command to several partitions. Raises AppendRefused, OutcomeUnknown."""
    record = command_record(deployment, job_id, e.Event(body))
    append_records(deployment, [(partition, record) for partition in partitions])


def command_record(deployment: Deployment, job_id: str, event: e.Event) -> e.EventRecord:
    """A command's record, with this process as its writer."""
    name = f"client-{socket.gethostname()}-{os.getpid()}"
    return e.EventRecord(e.UNNUMBERED, 0, deployment.clock.now_us(), 0, name, job_id, 0, (event,))


def append_records(deployment: Deployment, records: Iterable[tuple[int, e.EventRecord]]) -> None:
    """Appends commands, each to its partition. Raises AppendRefused, OutcomeUnknown."""
    appends = [command_append(deployment, partition, record) for partition, record in records]
    producer = deployment.log.producer()
    try:
        producer.append(appends)
    finally:
        producer.close()


def command_append(deployment: Deployment, partition: int, record: e.EventRecord) -> Append:
    """What puts a command onto a partition."""
    key, value = (record.job_id or "").encode(), deployment.codec.encode(record)
    return Append(deployment.topics.commands, partition, key, value, record.timestamp // 1000)


def _answer(deployment: Deployment, reader: Reader, command_id: str, timeout: float) -> CommandOutcome:
    answer = next(answers(deployment, reader, frozenset({command_id}), timeout), None)
    return CommandOutcome(command_id, QUEUED) if answer is None else _outcome(command_id, answer[1])


def answers(
    deployment: Deployment, reader: Reader, command_ids: frozenset[str], timeout: float
) -> Iterator[tuple[int, e.Body]]:
    """What partitions' owners record about commands within `timeout` seconds: (partition, body), as it comes."""
    clock = deployment.clock
    deadline = clock.monotonic() + timeout
    while (left := deadline - clock.monotonic()) > 0:
        for record in reader.poll(1000, left):
            with contextlib.suppress(UndecodableRecord):
                for event in deployment.codec.decode(record.value).events:
                    if getattr(event.body, "command_id", None) in command_ids:
                        yield record.partition, event.body


def _outcome(command_id: str, body: e.Body) -> CommandOutcome:
    answer = answer_of(body)
    return CommandOutcome(command_id, answer.state, answer.reason)


def workers_running(deployment: Deployment) -> bool:
    """Whether the namespace's worker group has members now."""
    return any(group.members for group in deployment.log.groups(deployment.group) if group.name == deployment.group)


def operator() -> str:
    """Who gives a command, for its record: the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
