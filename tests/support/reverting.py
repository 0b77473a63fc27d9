"""An aggregate that jobs write and whose changes are reverted, without a worker; and any history of one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.aggregate import evolve_aggregate
from rewindq.engine.core.evolve import Moment
from rewindq.engine.core.revert import MISSING, Plan, Scope, decide_revert, plan_revert

KEY = "order:1"


class Aggregate:
    """An aggregate that jobs write and that is reverted, as the fold has it; `versions` from its first on."""

    def __init__(self) -> None:
        self.now = s.NO_AGGREGATE
        self.versions: list[tuple[int, s.AggregateVersion]] = []

    def write(self, job_id: str, attempt: int = 1, **fields: Any) -> None:
        changes = {name: value for name, value in fields.items() if value is not MISSING}
        deleted = tuple(sorted(set(fields) - set(changes)))
        self._take(e.StateChanged(self.now.version, values.encode(changes), deleted), job_id, attempt)

    def _take(self, body: e.StateChanged | e.StateReverted, job_id: str, attempt: int) -> None:
        seq = 10 + 3 * len(self.versions)
        at = Moment(seq, 0, "w", job_id, attempt, None, None)
        self.now, stored = evolve_aggregate(self.now, body, self.now.version + 1, at)
        self.versions.append((seq, stored))

    def plan(self, job_id: str, attempt: int | None = None) -> Plan:
        return plan_revert({}, self.versions, Scope(job_id, attempt))

    def revert(self, job_id: str, attempt: int | None = None, command_id: str = "c") -> tuple[Plan, e.RevertDecided]:
        plan = self.plan(job_id, attempt)
        command = e.RevertCommand(command_id, "r", "ann", attempt)
        decided, *versions = decide_revert(KEY, (job_id, None), None, command, self.now.version, plan, "p0")
        for number, event in enumerate(versions, self.now.version + 1):
            assert isinstance(event.body, e.StateReverted)
            assert event.resource_version == number
            self._take(event.body, job_id, 0)
        assert isinstance(decided.body, e.RevertDecided)
        assert decided.body.versions == len(versions)
        return plan, decided.body


FIELDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([MISSING, 0, 1, 2]), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["bad", "x", "y"]), st.integers(1, 2), FIELDS),
        st.tuples(st.just("revert"), st.sampled_from(["x", "y"]), st.none() | st.integers(1, 2), st.none()),
    ),
    max_size=14,
)


def played(steps: list[Any]) -> Aggregate:
    one = Aggregate()
    for kind, job_id, attempt, fields in steps:
        if kind == "write":
            one.write(job_id, attempt, **fields)
        else:
            one.revert(job_id, attempt)
    return one
