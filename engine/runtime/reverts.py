"""Taking back what a job changed: what it would do now, and doing it, aggregate by aggregate, each at its home."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.compensate import SUFFIX
from ..core.doubt import resolve_command
from ..core.global_keys import home_of, is_global
from ..core.position import Position
from ..core.requests import SAVE
from ..core.revert import MISSING, Plan, Scope, kept_told, parts, plan_revert, revert_refusal
from ..ports.store import Family
from ..store.newest import read_aggregate
from ..store.written import written_since
from .commands import CommandRefusedError, answers, append_records, checked_reason, command_record, operator
from .ids import new_id
from .past import FoundJob, NotFound, PartitionPast, Past
from .trace import TraceRecord, read_trace

#: States of a revert.
PLANNED = "planned"
DONE = "done"
QUEUED = "queued"
#: Outcomes of effects that a person wants to know of.
_OUTSIDE = (s.DONE, s.IN_DOUBT, s.STARTED)


class Revert(NamedTuple):
    """What a revert did, or would do. Rows are as `shown` gives them; `waiting`: aggregates without an answer yet."""

    job_id: str
    state: str
    reverted: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    already: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    waiting: tuple[str, ...] = ()
    attempt: int | None = None
    refused_untold: int = 0

    def shown(self) -> dict[str, Any]:
        """For people and programs."""
        return {
            "job_id": self.job_id,
            "attempt": self.attempt,
            "dry_run": self.state == PLANNED,
            "state": self.state,
            "reverted": self.reverted,
            "refused": self.refused,
            "refused_untold": self.refused_untold,
            "already_reverted": self.already,
            "waiting": list(self.waiting),
            "effects": self.effects,
        }


class _Look(NamedTuple):
    """A job that may be reverted, and what a revert of each aggregate would do by what is recorded now."""

    found: FoundJob
    scope: Scope
    lamport: int
    plans: dict[str, Plan]
    asked: frozenset[str]
    effects: list[dict[str, Any]]

    @property
    def already(self) -> list[dict[str, Any]]:
        return [{"key": key, "field": name} for key, plan in self.plans.items() for name in plan.done]


def plan_of(past: Past, job_id: str, attempt: int | None = None) -> Revert:
    """What a revert of a job, or of one attempt, would do by what is recorded now. Reads only.

    Raises NotFound, CommandRefusedError while the job has not ended, LogDamaged.
    """
    look = _look(past, job_id, attempt)
    reverted, refused = [], []
    for key, plan in look.plans.items():
        partition, current = past.home(key).partition, past.aggregate(key).version
        for version, part in enumerate(parts(plan.restored), current + 1):
            reverted += [_row(key, one.field, one.now, one.old, version, None) for one in part]
        refused += [{"key": key, **kept_told(one, f"p{partition}")} for one in plan.kept]
    return Revert(job_id, PLANNED, reverted, refused, look.already, look.effects, attempt=attempt)


def revert_job(
    past: Past, job_id: str, reason: str, actor: str | None, timeout: float, attempt: int | None = None
) -> Revert:
    """Takes back what a job, or one attempt, changed; waits up to `timeout` seconds for the workers' answers.

    Nothing is sent where nothing is left to take back. Raises as `plan_of`, and ValueError without a reason,
    AppendRefused, OutcomeUnknown.
    """
    reason, deployment = checked_reason(reason), past.deployment
    look = _look(past, job_id, attempt)
    wanted = [key for key, plan in look.plans.items() if plan.restored or plan.kept or key in look.asked]
    commands = {new_id(deployment.clock): key for key in wanted}
    answered = _send(past, look, commands, reason, actor or operator(), timeout) if commands else {}
    past.refresh()
    reverted: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    untold = 0
    for command_id, key in commands.items():
        body = answered.get(command_id)
        if body is None:
            continue
        reverted += _versions_of(past.home(key), key, body)
        refused += _refused(key, body)
        untold += body.refused_total - len(values.decode(body.refused)) if isinstance(body, e.RevertDecided) else 0
    waiting = tuple(key for command_id, key in commands.items() if command_id not in answered)
    state = QUEUED if waiting else DONE
    return Revert(job_id, state, reverted, refused, look.already, look.effects, waiting, attempt, untold)


# --- what there is ---


def _look(past: Past, job_id: str, attempt: int | None) -> _Look:
    found, records = read_trace(past, job_id)
    refusal = revert_refusal(job_id, found.state)
    if refusal is not None:
        raise CommandRefusedError(refusal)
    begun = {one.record.attempt for one in records for event in one.record.events if _starts(event)}
    if attempt is not None and attempt not in begun:
        there = ", ".join(map(str, sorted(begun))) or "none"
        raise NotFound(f"job {job_id} has no attempt {attempt}: it has {there}")
    scope = Scope(job_id, attempt)
    changed, asked = changed_aggregates(records, attempt)
    plans = {}
    for key in changed:
        written = written_since(past.home(key).store, None, job_id, key)
        plans[key] = plan_revert(written.before, written.versions, scope)
    lamport = max((one.record.lamport + len(one.record.events) for one in records), default=0)
    effects = _effects(past, found.partition, records, attempt)
    return _Look(found, scope, lamport, plans, asked, effects)


def _starts(event: e.Event) -> bool:
    return isinstance(event.body, e.AttemptStarted)


def changed_aggregates(records: Iterable[TraceRecord], attempt: int | None) -> tuple[list[str], frozenset[str]]:
    """The aggregates that were changed, and those of them whose home may still have to decide a write.

    Such a write was asked for by an attempt that was lost, or ended by a cancel, before the answer came.
    """
    changed: dict[str, None] = {}
    asked: dict[str, str] = {}
    for entry in records:
        if attempt is not None and entry.record.attempt != attempt:
            continue
        for event in entry.record.events:
            body, key = event.body, event.resource or entry.record.resource or ""
            if isinstance(body, e.StateChanged):
                changed[key] = None
            elif isinstance(body, e.RemoteRequested) and body.op == SAVE:
                asked[body.request_id] = key
            elif isinstance(body, e.RemoteAnswered):
                asked.pop(body.request_id, None)
    changed.update(dict.fromkeys(asked.values()))
    return sorted(changed), frozenset(asked.values())


def _effects(past: Past, home: int, records: Sequence[TraceRecord], attempt: int | None) -> list[dict[str, Any]]:
    """The job's calls that were done or may have been: a revert leaves them alone."""
    started = {
        event.body.key: event.side_effect or event.step or ""
        for entry in records
        if attempt in (None, entry.record.attempt)
        for event in entry.record.events
        if isinstance(event.body, e.EffectStarted)
    }
    rows = []
    for key, operation in started.items():
        # Under a global key, what the key's own home has decided.
        place = home_of(key, past.deployment.partitions) if is_global(key) else home
        found = past.partition(place).effect(key)
        if found is None or found.record.status not in _OUTSIDE:
            continue
        if key.endswith(SUFFIX) and found.record.status == s.DONE:
            continue  # the undoing itself, told with what it undid
        rows.append(
            {
                "key": key,
                "operation": operation,
                "status": found.record.status,
                "compensated": found.undo == s.DONE,
                "compensation": found.undo,
                "resolve": resolve_command(key) if found.record.status == s.IN_DOUBT else None,
            }
        )
    return rows


# --- doing it ---


def _send(
    past: Past, look: _Look, commands: dict[str, str], reason: str, actor: str, timeout: float
) -> dict[str, e.Body]:
    """Appends a command for each aggregate, by its id; what the owners recorded of them in time."""
    deployment, head = past.deployment, look.found.head
    records = []
    for command_id, key in commands.items():
        body = e.RevertCommand(command_id, reason, actor, look.scope.attempt)
        record = command_record(deployment, look.found.job_id, e.Event(body, resource=key))
        about = replace(record, lamport=look.lamport, trace_id=head.trace_id, correlation_id=head.correlation_id)
        records.append((past.home(key).partition, about))
    topic = deployment.topics.lifecycle
    places = {(topic, partition) for partition, _ in records}
    # Opened before the commands are sent, so that no answer is missed.
    reader = deployment.log.reader({place: deployment.log.bounds(*place)[1] for place in places})
    found: dict[str, e.Body] = {}
    try:
        append_records(deployment, records)
        for _, answer in answers(deployment, reader, frozenset(commands), timeout):
            found[answer.command_id] = answer  # type: ignore[attr-defined]
            if len(found) == len(commands):
                break
    finally:
        reader.close()
    return found


def _versions_of(home: PartitionPast, key: str, body: e.Body) -> list[dict[str, Any]]:
    """The fields that were brought back, from the versions that the decision wrote."""
    if not isinstance(body, e.RevertDecided):
        return []
    rows: list[dict[str, Any]] = []
    left = body.versions
    history = home.store.history(Family.AGGREGATES, key.encode(), reverse=True) if left else ()
    for seq, version in ((stored.seq, s.decode_version(stored.value)) for stored in history):
        if version.reverted is not None and version.reverted.command_id == body.command_id:
            rows += _version_rows(home, key, seq, version)
            left -= 1
            if not left:
                break
    return sorted(rows, key=lambda row: (row["version"], row["field"]))


def _version_rows(home: PartitionPast, key: str, seq: int, version: s.AggregateVersion) -> list[dict[str, Any]]:
    before = read_aggregate(home.store, key, seq - 1).data
    after = {**values.decode(version.changes), **dict.fromkeys(version.deleted, MISSING)}
    position = str(Position(home.partition, seq))
    return [
        _row(key, name, before.get(name, MISSING), value, version.version, position) for name, value in after.items()
    ]


def _refused(key: str, body: e.Body) -> list[dict[str, Any]]:
    if isinstance(body, e.RevertDecided) and body.refusal is None:
        return [{"key": key, **told} for told in values.decode(body.refused)]
    why = body.refusal if isinstance(body, e.RevertDecided) else body.reason  # type: ignore[attr-defined]
    return [{"key": key, "field": None, "why": why, "written_by": None, "version": None, "position": None}]


def _row(key: str, field: str, now: Any, old: Any, version: int, position: str | None) -> dict[str, Any]:
    """`action`: set to another value, delete (there was no such field), or restore (the job had deleted it)."""
    action = "delete" if old is MISSING else "restore" if now is MISSING else "set"
    return {
        "key": key,
        "field": field,
        "action": action,
        "from": None if now is MISSING else values.plain(now),
        "to": None if old is MISSING else values.plain(old),
        "version": version,
        "position": position,
    }
