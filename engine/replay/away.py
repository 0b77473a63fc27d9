"""Resources that are at home on other partitions, as a replay knows them: from what was recorded of them.

A replay reads one partition's past, so what the recording never read of another one stays unknown, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import events as e
from ..core import values
from ..core.aggregate import DELETE, apply_changes, split_changes
from ..core.requests import CONFLICT, DONE, FENCED, LEASE, LOAD, SAVE
from ..effects.errors import BadStep, EffectBlocked, LeaseUnavailable, NoAnswer, WriteRefused
from ..runtime.context import Aggregate
from ..runtime.leasing import LeaseHandle
from .answers import lease_refusal
from .recording import Occurred, Step
from .world import shown

if TYPE_CHECKING:
    from .session import ReplaySession
    from .writer import BranchWriter

_REFUSED = (CONFLICT, FENCED)


class RecordedAway:
    """A dry-run's: every answer is the recorded one."""

    def __init__(self, session: ReplaySession) -> None:
        self._session = session
        self._own: dict[str, dict[str, Any]] = {}

    def load(self, step: str, key: str) -> Aggregate:
        """The recorded answer; what this run itself has written otherwise lies over it."""
        at = self._answer(self._session.take(step, "load"), step, key)
        if at.body.outcome != DONE:
            raise NoAnswer(f"{step}: partition {at.body.home} refused: {at.body.reason}", step=step)
        found = read_answer(self._session, key, at)
        data = {**found.data, **self._own.get(key, {})}
        return found._replace(data={name: value for name, value in data.items() if value is not DELETE})

    def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Compared with the recorded write; kept for this run's own reads where it differs."""
        fields, deleted = _split(step, changes)
        recorded = self._session.take(step, "save", digest=values.digest(fields), expected=expected)
        asked = None if recorded is None else recorded.find(e.RemoteRequested)
        if recorded is None or asked is None:
            self._own.setdefault(key, {}).update(changes)
            return expected + 1
        before = {"expected": asked.body.expected, "changes": shown(asked.body.changes)}
        if (asked.body.expected, asked.body.changes, asked.body.deleted) != (expected, fields, deleted):
            now = {"expected": expected, "changes": shown(fields)}
            self._session.matcher.found("write_differs", step, before, now)
            self._own.setdefault(key, {}).update(changes)
        at = self._answer(recorded, step, key)
        if at.body.outcome == DONE:
            return at.event.resource_version or expected + 1
        raise refused_write(step, key, expected, at)

    def acquire(self, step: str, resource: str) -> LeaseHandle:
        """The recorded token, or the recorded refusal."""
        recorded = self._session.take(step, "lease", resource=resource)
        if recorded is None:
            return LeaseHandle(resource, 0)
        refused = lease_refusal(recorded, resource)
        if refused is not None:
            raise refused
        at = self._answer(recorded, step, resource)
        if at.body.outcome != DONE:
            raise LeaseUnavailable.elsewhere(resource, at.body.reason, at.body.home_waited, step)
        return LeaseHandle(resource, at.event.fencing_token or 0)

    def _answer(self, recorded: Step | None, step: str, resource: str) -> Occurred:
        """The recorded answer. Raises RecordingEnded where the recording stops before it."""
        if recorded is None:
            raise never_read(step, resource)
        answered = recorded.first_answer
        if answered is None:
            raise self._session.end(f"ends here: step {step} started, outcome unknown")
        return answered


class ForkAway(RecordedAway):
    """A fork's: what was recorded of a resource, with the branch's own writes over it."""

    def __init__(self, session: ReplaySession, writer: BranchWriter) -> None:
        super().__init__(session)
        self._writer = writer
        self._known: dict[str, Aggregate] = {}
        self._count = 0
        for step in session.setting.attempt.steps:
            self._learn(step)

    def load(self, step: str, key: str) -> Aggregate:
        """The branch's newest version, as far as it is known."""
        if self._session.matcher.knows(step):
            return super().load(step, key)
        found = self._known.get(key)
        if found is None:
            raise never_read(step, key)
        self._record(step, LOAD, key, DONE, found.version, values.encode(dict(found.data)))
        return found

    def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Writes into the branch, under the rules of the live mode."""
        if self._session.matcher.knows(step):
            version = super().save(step, key, changes, expected)
            self._write(step, key, changes, version)
            return version
        fields, deleted = _split(step, changes)
        found = self._known.get(key)
        if found is None:
            raise never_read(step, key)
        body = e.RemoteRequested(self._request_id(), SAVE, self._home(key), fields, deleted, expected)
        self._writer.append((e.Event(body, step=step, resource=key),))
        if found.version != expected:
            at = self._record(step, SAVE, key, CONFLICT, found.version)
            raise WriteRefused.found(key, found.version, expected, at.reason, step)
        self._record(step, SAVE, key, DONE, expected + 1)
        self._write(step, key, changes, expected + 1)
        return expected + 1

    def acquire(self, step: str, resource: str) -> LeaseHandle:
        """Grants the lease in the branch, where nobody competes."""
        if self._session.matcher.knows(step):
            return super().acquire(step, resource)
        recorded = self._session.setting.attempt.by_name.get(step)
        answered = None if recorded is None else recorded.first_answer
        token = (None if answered is None else answered.event.fencing_token) or 1
        self._record(step, LEASE, resource, DONE, None, token=token)
        return LeaseHandle(resource, token)

    def _learn(self, step: Step) -> None:
        """What the recording's first read of a resource found."""
        at = step.first_answer
        if at is not None and at.body.op == LOAD and at.body.outcome == DONE and at.event.resource is not None:
            self._known.setdefault(at.event.resource, read_answer(self._session, at.event.resource, at))

    def _write(self, step: str, key: str, changes: Mapping[str, Any], version: int) -> None:
        fields, deleted = _split(step, changes)
        before = dict(self._known[key].data) if key in self._known else {}
        self._known[key] = Aggregate(key, version, apply_changes(before, fields, deleted))

    def _record(
        self,
        step: str,
        op: str,
        resource: str,
        outcome: str,
        version: int | None,
        value: bytes | None = None,
        token: int | None = None,
    ) -> e.RemoteAnswered:
        reason = None if outcome == DONE else "the branch has another version"
        body = e.RemoteAnswered(self._request_id(), op, self._home(resource), outcome, 0, reason=reason, value=value)
        event = e.Event(
            body,
            step=step,
            status="success" if outcome == DONE else "fail",
            resource=resource,
            resource_version=version,
            fencing_token=token,
        )
        self._writer.append((event,))
        return body

    def _request_id(self) -> str:
        self._count += 1
        return f"{self._session.job_id}/{self._session.attempt}/{self._count}"

    def _home(self, resource: str) -> int:
        return self._session.home_of(resource)


def read_answer(session: ReplaySession, key: str, at: Occurred) -> Aggregate:
    """An aggregate as it was answered."""
    data = session.stored(at.body.value, at.body.value_ref)
    return Aggregate(key, at.event.resource_version or 0, values.decode(data or b"{}"))


def refused_write(step: str, key: str, expected: int, at: Occurred) -> WriteRefused | NoAnswer:
    """The error of a write that its home refused."""
    body = at.body
    if body.outcome in _REFUSED:
        return WriteRefused.found(key, at.event.resource_version, expected, body.reason, step)
    return NoAnswer(f"{step}: partition {body.home} refused: {body.reason}", step=step)


def never_read(step: str, resource: str) -> EffectBlocked:
    """The error of a step whose answer only another partition has."""
    return EffectBlocked(
        f"{step}: {resource} is at home on another partition, and the recording holds no read of it; "
        "a replay sees of other partitions what was recorded",
        step=step,
    )


def _split(step: str, changes: Mapping[str, Any]) -> tuple[bytes, tuple[str, ...]]:
    try:
        fields, deleted = split_changes(dict(changes))
        return values.encode(fields), deleted
    except values.ValueRefused as error:
        raise BadStep(f"{step}: {error}", step=step) from error
