"""The events of a fork: numbered on from its base, folded at once, gathered for the branch's topics.

Nothing here reads a clock: a branch's content is a function of its base, its code, its inputs and its answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ..core import events as e
from ..core import state as s
from ..core.fold import apply_record
from ..core.position import Position
from ..store.working import WorkingSet

#: A branch has one writer for ever.
EPOCH = 1


def branch_worker(branch: str) -> str:
    """The name under which a branch's events are written."""
    return f"branch-{branch}"


class BranchWriter:
    """Numbers and folds a fork's events. `at` is the recorded event before the base: time and order go on from it."""

    def __init__(
        self,
        branch: str,
        job_id: str,
        head: s.JobHead,
        attempt: int,
        base: Position,
        at: e.EventRecord,
        states: WorkingSet,
        code_version: str | None,
    ) -> None:
        self.states = states
        self.records: list[e.EventRecord] = []
        self.seq = base.seq
        self.now_us = at.timestamp
        self._branch = branch
        self._job_id = job_id
        self._head = head
        self._attempt = attempt
        self._cause = str(Position(base.partition, base.seq - 1))
        self._lamport = at.lamport + len(at.events)
        self._code_version = code_version

    def append(self, events: Iterable[e.Event]) -> None:
        """Adds events of this attempt; consecutive ones of one topic become one record."""
        for _, group in groupby(events, key=lambda event: event.body.topic):
            self._append(tuple(group))

    def _append(self, events: tuple[e.Event, ...]) -> None:
        self.now_us += 1
        record = e.EventRecord(
            self.seq,
            self._lamport + 1,
            self.now_us,
            EPOCH,
            branch_worker(self._branch),
            self._job_id,
            self._attempt,
            events,
            self._head.resource,
            self._head.trace_id,
            self._branch,
            self._cause,
            self._head.correlation_id,
            self._code_version,
        )
        apply_record(self.states, record)
        self.seq = record.next_seq
        self._lamport += len(events)
        self._cause = f"{self._branch}/{record.seq}"
        self.records.append(record)
