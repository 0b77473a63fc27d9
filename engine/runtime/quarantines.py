"""Quarantines of job types over all partitions: adding and lifting them, and what they hold.

Each partition's owner records its own event, so that a partition's fold is complete in itself. A command whose
partition has no owner yet stands on the commands topic; whoever takes that partition over reads it before anything
else, so it counts as holding already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.evolve import Moment
from ..core.names import valid_job_id
from ..core.quarantine import decide_quarantine, evolve_quarantine, held_text
from ..core.times import format_time
from ..ports.log import Reader
from ..store.newest import read_quarantines, read_queued
from .commands import answers, append_to_partitions, command_id_of, operator
from .deployment import Deployment
from .past import FoundJob, Past
from .pending import committed_offsets, read_from

Command = e.QuarantineCommand | e.LiftCommand


class NotQuarantined(Exception):
    """The job type is not quarantined on any partition: there is nothing to lift. Names it."""


class Queued(NamedTuple):
    """A command that its partition's owner has not carried out yet; `at` microseconds."""

    body: Command
    at: int


class QuarantineOutcome(NamedTuple):
    """Which partitions have recorded a command, and which have not yet."""

    command_id: str
    recorded: tuple[int, ...]
    waiting: tuple[int, ...]


def queued_commands(deployment: Deployment, partition: int, start: int) -> list[Queued]:
    """The quarantine commands on a partition's commands topic from an offset on."""
    found = []
    for record in read_from(deployment, deployment.topics.commands, partition, start):
        with contextlib.suppress(UndecodableRecord):  # its owner parks it when its turn comes
            decoded = deployment.codec.decode(record.value)
            found += [Queued(one.body, decoded.timestamp) for one in decoded.events if isinstance(one.body, Command)]
    return found


class Quarantines:
    """What is quarantined now, each partition looked up when it is first asked for."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._known: dict[int, tuple[dict[str, s.Quarantine], set[str]]] = {}
        self._committed: dict[tuple[str, int], int] | None = None

    def of(self, partition: int) -> dict[str, s.Quarantine]:
        """The quarantines that hold on a partition, by job type; queued commands count."""
        return self._look(partition)[0]

    def held(self, found: FoundJob) -> str | None:
        """Why no attempt of a job will start, None where none is to start or nothing holds it."""
        if found.state.status not in s.QUEUED:
            return None
        quarantine = self.of(found.partition).get(found.head.type)
        return None if quarantine is None else held_text(quarantine)

    def shown(self) -> list[dict[str, Any]]:
        """All that hold, by type: reason, actor, since when, where it is recorded or queued, jobs held."""
        partitions = range(self._past.deployment.partitions)
        listed: dict[str, dict[str, Any]] = {}
        for partition in partitions:
            active, unrecorded = self._look(partition)
            queued = read_queued(self._past.partition(partition).store)
            for job_type, one in sorted(active.items()):
                entry = listed.setdefault(job_type, _entry(job_type, one))
                entry["held"] += queued.get(job_type, 0)
                entry["queued" if job_type in unrecorded else "recorded"].append(partition)
        return [listed[job_type] for job_type in sorted(listed)]

    def asked(self, job_type: str, command_id: str) -> bool:
        """Whether a command is recorded or queued anywhere."""
        if _known(self._past, job_type, command_id):
            return True
        queued = (one for number in range(self._past.deployment.partitions) for one in self._queued(number))
        return any(one.body.command_id == command_id for one in queued)

    def _look(self, partition: int) -> tuple[dict[str, s.Quarantine], set[str]]:
        """The active ones, and the types whose newest command is not recorded yet."""
        if partition not in self._known:
            # Commands first: what an owner carries out meanwhile is then seen twice, which changes nothing.
            commands = self._queued(partition)
            past = self._past.partition(partition)
            past.refresh()
            known = read_quarantines(past.store)
            unrecorded = {command.body.type for command in commands if _apply(known, command)}
            self._known[partition] = ({name: one for name, one in known.items() if one.active}, unrecorded)
        return self._known[partition]

    def _queued(self, partition: int) -> list[Queued]:
        deployment = self._past.deployment
        if self._committed is None:
            self._committed = committed_offsets(deployment)
        topic = deployment.topics.commands
        low, _ = deployment.log.bounds(topic, partition)
        return queued_commands(deployment, partition, max(low, self._committed.get((topic, partition), low)))


def _apply(known: dict[str, s.Quarantine], command: Queued) -> bool:
    """Decides a queued command as its owner will; whether it is new."""
    events = decide_quarantine(known.get(command.body.type), command.body)
    for event in events:
        assert isinstance(event.body, e.QuarantineAdded | e.QuarantineLifted)
        at = Moment(0, command.at, "", "", 0, None, None)
        known[command.body.type] = evolve_quarantine(known.get(command.body.type), event.body, at)
    return bool(events)


def _entry(job_type: str, one: s.Quarantine) -> dict[str, Any]:
    return {
        "type": job_type,
        "reason": one.reason,
        "by": one.actor,
        "since": format_time(one.since),
        "held": 0,
        "recorded": [],
        "queued": [],
    }


def quarantine_type(
    past: Past, job_type: str, reason: str, actor: str | None, timeout: float, request_id: str | None = None
) -> QuarantineOutcome:
    """Holds a job type on every partition. Waits up to `timeout` seconds until all have recorded it.

    Under the same `request_id` it is done once, however often it is asked for.
    Raises ValueError for a blank reason or a type that none can have, AppendRefused, OutcomeUnknown.
    """
    command_id = command_id_of(past.deployment, request_id, "quarantine", job_type)
    return _send(past, e.QuarantineCommand, command_id, job_type, reason, actor, timeout)


def lift_quarantine(
    past: Past, job_type: str, reason: str, actor: str | None, timeout: float, request_id: str | None = None
) -> QuarantineOutcome:
    """Lifts a job type's quarantine on every partition; as `quarantine_type`. Raises NotQuarantined."""
    quarantines = Quarantines(past)
    deployment = past.deployment
    command_id = command_id_of(deployment, request_id, "lift", job_type)
    holds = any(job_type in quarantines.of(partition) for partition in range(deployment.partitions))
    # Looked up in this order: what another caller of the same request does meanwhile is seen.
    if not holds and not quarantines.asked(job_type, command_id):
        raise NotQuarantined(f"type {job_type!r} is not quarantined: `rewindq quarantine list` shows what is")
    return _send(past, e.LiftCommand, command_id, job_type, reason, actor, timeout)


def _known(past: Past, job_type: str, command_id: str) -> set[int]:
    """The partitions that have recorded a command, as far as is known here."""
    stores = ((number, past.partition(number).store) for number in range(past.deployment.partitions))
    found = ((number, read_quarantines(store).get(job_type)) for number, store in stores)
    return {number for number, one in found if one is not None and command_id in one.commands}


def _send(
    past: Past,
    kind: Callable[[str, str, str, str], Command],
    command_id: str,
    job_type: str,
    reason: str,
    actor: str | None,
    timeout: float,
) -> QuarantineOutcome:
    if not reason.strip():
        raise ValueError("a quarantine needs a reason: it stays in the log, and held jobs show it")
    if not valid_job_id(job_type):
        raise ValueError(f"job type {job_type!r} must be 1 to 200 printable characters")
    deployment = past.deployment
    topic, partitions = deployment.topics.lifecycle, range(deployment.partitions)
    # Opened before the command is sent, so that no answer is missed.
    reader = deployment.log.reader({(topic, p): deployment.log.bounds(topic, p)[1] for p in partitions})
    try:
        body = kind(command_id, reason, actor or operator(), job_type)
        past.refresh()
        recorded = _known(past, job_type, command_id)
        missing = [p for p in partitions if p not in recorded]
        if missing:
            append_to_partitions(deployment, missing, f"quarantine-{values.digest(command_id.encode())[7:39]}", body)
            recorded |= _recorded(deployment, reader, command_id, timeout, set(missing))
    finally:
        reader.close()
    waiting = tuple(p for p in partitions if p not in recorded)
    return QuarantineOutcome(command_id, tuple(sorted(recorded)), waiting)


def _recorded(deployment: Deployment, reader: Reader, command_id: str, timeout: float, awaited: set[int]) -> set[int]:
    """The partitions whose owners record the command, when those that are awaited have or the time is over."""
    recorded: set[int] = set()
    for partition, _ in answers(deployment, reader, frozenset({command_id}), timeout):
        recorded.add(partition)
        if awaited <= recorded:
            break
    return recorded
