"""What must hold of reverts in a log: each version of one is announced, and brings back what stood before the job.

Checked by leaving writes out, not by the way that `core.revert` goes: two implementations have to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import events as e
from ..core import state as s
from ..core import values
from ..ports.store import Family, View

#: Reports a broken rule: its kind, the event's number, the job, what was found.
Report = Callable[[str, int, str | None, str], None]
_ABSENT = b""


class _Left(NamedTuple):
    """A write that no revert took back: whose it is, its value (canonical bytes), and whether that was a new one."""

    job_id: str | None
    attempt: int
    value: bytes
    new: bool

    def is_of(self, version: s.AggregateVersion) -> bool:
        """Whether a revert's version takes back what this one's job, or attempt, did."""
        assert version.reverted is not None
        return self.job_id == version.job_id and version.reverted.attempt in (None, self.attempt)


class RevertChecks:
    """The checks of one partition's reverts."""

    def __init__(self, broken: Report) -> None:
        self._broken = broken
        self._announced: tuple[str, str, int] | None = None
        self._decided: set[tuple[str, str, str]] = set()
        self._keys: set[str] = set()

    def take(self, job_id: str, event: e.Event, seq: int, ended: bool) -> None:
        """Checks a `RevertDecided` or `StateReverted`; `ended` is whether the job was not about to go on."""
        key, body = event.resource or "", event.body
        if isinstance(body, e.RevertDecided):
            self.end(seq)
            if body.versions:
                self._announced = (key, body.command_id, body.versions)
            if (job_id, key, body.command_id) in self._decided:
                self._broken("revert", seq, job_id, f"command {body.command_id} reverted {key} a second time")
            self._decided.add((job_id, key, body.command_id))
            if body.versions and not ended:
                self._broken("revert", seq, job_id, f"its change of {key} was reverted while it had not ended")
        elif isinstance(body, e.StateReverted):
            self._keys.add(key)
            left = 0 if self._announced is None else self._announced[2]
            if self._announced is None or self._announced[:2] != (key, body.command_id):
                self._broken("revert", seq, job_id, f"a version of {key} reverts, and no decision says so")
            self._announced = (key, body.command_id, left - 1) if left > 1 else None

    def end(self, seq: int) -> None:
        """Checks that all announced versions have come."""
        if self._announced is not None:
            key, command_id, left = self._announced
            self._broken("revert", seq, None, f"{left} versions of {key} are missing that command {command_id} decided")
            self._announced = None

    def compare(self, view: View) -> None:
        """Checks what was brought back, in the aggregates that any revert has changed."""
        for key in sorted(self._keys):
            self._compare(view, key)

    def _compare(self, view: View, key: str) -> None:
        left: dict[str, list[_Left]] = {}
        for stored in view.history(Family.AGGREGATES, key.encode()):
            version = s.decode_version(stored.value)
            changes = {name: values.encode(value) for name, value in values.decode(version.changes).items()}
            changes.update(dict.fromkeys(version.deleted, _ABSENT))
            if version.reverted is None:
                for name, value in changes.items():
                    writes = left.setdefault(name, [])
                    before = writes[-1].value if writes else _ABSENT
                    writes.append(_Left(version.job_id, version.attempt, value, value != before))
                continue
            for name in sorted({*left, *changes}):
                detail = _leave_out(left.setdefault(name, []), version, changes.get(name))
                if detail is not None:
                    self._broken("revert", stored.seq, version.job_id, f"{key} {name}: {detail}")


def _leave_out(writes: list[_Left], version: s.AggregateVersion, brought: bytes | None) -> str | None:
    """Leaves a revert's writes out; what is wrong with what it `brought` back (None: it left the field alone)."""
    kept = list(writes)
    while kept and kept[-1].is_of(version):
        kept.pop()
    value: Any = kept[-1].value if kept else _ABSENT
    now = writes[-1].value if writes else _ABSENT
    if brought is None:
        if value == now:
            writes[:] = kept
        return None
    whole = len(kept) == len(writes) or any(one.is_of(version) and one.new for one in kept)
    writes[:] = kept
    if whole:
        return "it was reverted, although somebody else has written it since"
    return None if value == brought else f"it was given {brought.decode()!r}, and had {value.decode()!r} before the job"
