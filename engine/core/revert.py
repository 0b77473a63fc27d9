"""Taking back what a job changed in an aggregate: which fields go back to what, and which are left alone. Pure.

A field goes back to what it held before the job's first change of it, if every write since is the job's own; so
nobody else's write is undone, not even one between two of the job's. What a revert took back counts as never written:
after the revert of a later job, an earlier one can be reverted in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from . import events as e
from . import state as s
from . import values
from .texts import bounded

#: Ids of commands that are remembered for a job and an aggregate.
COMMANDS_MAX = 100
#: A version of a revert holds no more bytes of old values than this, unless one field alone has more.
VERSION_BYTES_MAX = 256 * 1024
#: Refused fields that are told by name.
REFUSED_MAX = 500


class RevertMarks(Protocol):
    """Which commands have reverted a job's changes of an aggregate."""

    def of(self, job_id: str, resource: str) -> s.Reverts | None:
        """The newest of them."""
        ...

    def keep(self, job_id: str, resource: str, value: s.Reverts) -> None:
        """Stores them."""
        ...


class Missing:
    """The type of `MISSING`: there is no such field."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Scope(NamedTuple):
    """Whose changes are taken back: a job's, or those of one of its attempts."""

    job_id: str
    attempt: int | None = None

    def covers(self, version: s.AggregateVersion) -> bool:
        """Whether it wrote a version."""
        return version.job_id == self.job_id and self.attempt in (None, version.attempt)


class Write(NamedTuple):
    """A write of a field: the version that holds it, where that stands, what the field held before and holds since."""

    seq: int
    version: s.AggregateVersion
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        """Whether it made a difference."""
        return not same(self.before, self.after)


class Restored(NamedTuple):
    """A field that goes back to what it held before; MISSING: there was, or is, no such field."""

    field: str
    now: Any
    old: Any


class Kept(NamedTuple):
    """A field that is left alone, why, and the write of somebody else that it is left alone for."""

    field: str
    why: str
    write: Write


class Plan(NamedTuple):
    """What a revert does to an aggregate. `done`: fields of which earlier reverts took everything back."""

    restored: tuple[Restored, ...]
    kept: tuple[Kept, ...]
    done: tuple[str, ...]
    #: The newest version that was the job's own, as its number in the log; None: it has changed nothing here.
    last_seq: int | None


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are recorded alike."""
    if one is MISSING or other is MISSING:
        return one is other
    return values.encode(one) == values.encode(other)


def plan_revert(before: Mapping[str, Any], versions: Sequence[tuple[int, s.AggregateVersion]], scope: Scope) -> Plan:
    """The fields of an aggregate that a revert brings back and those that it leaves alone.

    `versions` are all `(seq, version)` since `before`, oldest first, none of the job's own before them.
    """
    own = [version for _, version in versions if version.reverted is None and scope.covers(version)]
    names = {name for version in own for name, _ in _values_of(version)}
    fields: dict[str, Any] = dict(before)
    standing: dict[str, list[Write]] = {}
    undone: set[str] = set()
    last_seq = None
    for seq, version in versions:
        if version.reverted is not None:
            undone |= _take_back(standing, version, scope)
        elif scope.covers(version):
            last_seq = seq
        for name, value in _values_of(version):
            if version.reverted is None and name in names:
                write = Write(seq, version, fields.get(name, MISSING), value)
                standing.setdefault(name, []).append(write)
            fields[name] = value
    restored, kept, done = [], [], []
    for name, writes in sorted(standing.items()):
        found = _judge(name, writes, scope)
        if isinstance(found, Kept):
            kept.append(found)
        elif isinstance(found, Restored):
            restored.append(found)
        elif found and name in undone:
            done.append(name)
    return Plan(tuple(restored), tuple(kept), tuple(done), last_seq)


def _values_of(version: s.AggregateVersion) -> Iterator[tuple[str, Any]]:
    yield from values.decode(version.changes).items()
    yield from ((name, MISSING) for name in version.deleted)


def _take_back(standing: dict[str, list[Write]], version: s.AggregateVersion, scope: Scope) -> set[str]:
    """Forgets the writes that a revert took back; those fields of the scope's own that it took a change back from.

    Writes that made no difference in the end are taken back without being named.
    """
    assert version.reverted is not None
    theirs = Scope(version.job_id or "", version.reverted.attempt)
    named = {name for name, _ in _values_of(version)}
    undone = set()
    for name, writes in standing.items():
        start = len(writes)
        while start and theirs.covers(writes[start - 1].version):
            start -= 1
        run = writes[start:]
        if run and (name in named or same(run[0].before, run[-1].after)):
            del writes[start:]
            if any(scope.covers(write.version) and write.changed for write in run):
                undone.add(name)
    return undone


def _judge(name: str, writes: list[Write], scope: Scope) -> Restored | Kept | bool:
    """What becomes of a field; True where none of the scope's changes of it stands."""
    own = [at for at, write in enumerate(writes) if scope.covers(write.version) and write.changed]
    if not own:
        return True
    others = [write for write in writes[own[0] :] if not scope.covers(write.version)]
    if others:
        return Kept(name, _why(others[-1], writes[-1], scope), others[-1])
    old, now = writes[own[0]].before, writes[-1].after
    # What the job has set back itself needs nothing.
    return False if same(old, now) else Restored(name, now, old)


def _why(other: Write, newest: Write, scope: Scope) -> str:
    writer = other.version.writer
    if other.version.job_id == scope.job_id:
        writer = f"attempt {other.version.attempt} of the job itself"
    if other is newest:
        return f"{writer} has written it since"
    return f"{writer} has written it between the job's own changes, so it is unclear what it would hold without them"


# --- what an owner decides ---


def revert_refusal(job_id: str, job: s.JobState) -> str | None:
    """Why a job's changes cannot be taken back now; None where they can."""
    if job.status not in s.ACTIVE:
        return None
    if job.compensating is not None:
        return f"job {job_id} has failed, and what it did outside is being undone: revert it when that has ended"
    return (
        f"job {job_id} is {job.status}, and may change more: wait until it has ended, or end it with "
        f"`rewindq jobs cancel {job_id} --reason R`"
    )


def decide_revert(
    key: str,
    job: tuple[str, s.JobState | None],
    known: s.Reverts | None,
    command: e.RevertCommand,
    current: int,
    plan: Plan,
    place: str,
) -> tuple[e.Event, ...]:
    """What became of a revert of an aggregate, and its versions behind `current`; nothing for a command that was
    carried out before.

    `job` is the job's id and, where it is at home here, its state; `place` is the partition in positions, as `p3`.
    """
    if known is not None and command.command_id in known.commands:
        return ()
    refusal = None if job[1] is None else revert_refusal(job[0], job[1])
    if refusal is not None:
        return (_decided(key, command, current, 0, (), place, bounded(refusal)),)
    versions = []
    for number, part in enumerate(parts(plan.restored), current):
        fields = {one.field: one.old for one in part if one.old is not MISSING}
        deleted = tuple(sorted(one.field for one in part if one.old is MISSING))
        body = e.StateReverted(
            number,
            values.encode(fields),
            deleted,
            command.reason,
            command.actor,
            command.command_id,
            command.attempt,
        )
        versions.append(e.Event(body, resource=key, resource_version=number + 1))
    return (_decided(key, command, current, len(versions), plan.kept, place), *versions)


def parts(restored: tuple[Restored, ...]) -> Iterator[list[Restored]]:
    """The fields in groups, each small enough for one record of the log."""
    part: list[Restored] = []
    size = 0
    for one in restored:
        length = len(one.field) + (0 if one.old is MISSING else len(values.encode(one.old)))
        if part and size + length > VERSION_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part


def _decided(
    key: str,
    command: e.RevertCommand,
    current: int,
    versions: int,
    kept: tuple[Kept, ...],
    place: str,
    refusal: str | None = None,
) -> e.Event:
    body = e.RevertDecided(
        command.reason,
        command.actor,
        command.command_id,
        command.attempt,
        versions,
        values.encode([kept_told(one, place) for one in kept[:REFUSED_MAX]]),
        len(kept),
        refusal,
    )
    status: e.Status = "fail" if kept or refusal is not None else "success" if versions else "skipped"
    return e.Event(body, status=status, resource=key, resource_version=current)


def kept_told(one: Kept, place: str) -> dict[str, Any]:
    """A field that was left alone, for the trace and for people."""
    version = one.write.version
    return {
        "field": one.field,
        "why": bounded(one.why),
        "written_by": version.job_id,
        "version": version.version,
        "position": f"{place}@{one.write.seq}",
    }


def evolve_reverts(known: s.Reverts | None, body: e.RevertDecided) -> s.Reverts:
    """The commands that are remembered after one more."""
    return s.Reverts((*(known.commands if known is not None else ()), body.command_id)[-COMMANDS_MAX:])


def keep_command(marks: RevertMarks, event: e.Event, job_id: str) -> None:
    """Remembers a decision's command."""
    assert isinstance(event.body, e.RevertDecided)
    resource = event.resource or ""
    marks.keep(job_id, resource, evolve_reverts(marks.of(job_id, resource), event.body))
