"""Plans periodic jobs: each schedule by the owner of its home partition, inside the worker that owns it.

What was planned is in the partition's fold, and an instant's job is submitted in the transaction that records it. So
whoever owns the partition next goes on exactly where the last owner stopped, and a former owner's turn is fenced.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from rewindq.engine.core import events as e
from rewindq.engine.core import schedule as d
from rewindq.engine.core import timeline as t
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.deployment import Deployment

from ..worker.owner import About, Owner

log = structlog.get_logger(__name__)


class _Planned(NamedTuple):
    """A schedule of a home partition, its payload as it is submitted, and its jobs' key."""

    definition: d.Definition
    submitted: e.JobSubmitted
    key: str | None


class _Home:
    """An owned partition with schedules: its timeline, and the first instant of each that is still to come."""

    def __init__(self, owner: Owner, timeline: t.Timeline) -> None:
        self.owner = owner
        self.timeline = timeline
        self.upcoming: dict[str, int | None] = {}


class Scheduler:
    """The periodic jobs of a worker's partitions. Used from the worker's event loop only."""

    def __init__(self, deployment: Deployment, app: App) -> None:
        """Raises AppError, BodyTooLarge."""
        self._deployment = deployment
        self._at_home: dict[int, list[_Planned]] = {}
        self._homes: dict[int, _Home] = {}
        for name, job in app.schedules().items():
            inline, ref = deployment.large(job.payload)
            submitted = e.JobSubmitted(job.definition.type, inline, ref, values.digest(job.payload))
            home = partition_for(name.encode(), deployment.partitions)
            self._at_home.setdefault(home, []).append(_Planned(job.definition, submitted, job.key))

    def adopt(self, owner: Owner) -> None:
        """Takes over the schedules that are at home on a partition."""
        planned = self._at_home.get(owner.partition)
        if planned is None:
            return
        floor = max((known.last or 0 for known in owner.states.schedules.values()), default=0)
        home = _Home(owner, t.begin(*self._clocks(), floor))
        self._homes[owner.partition] = home
        for one in planned:
            definition = one.definition
            known = owner.states.schedules.get(definition.name)
            owner.append(_about(definition.name), d.decide_definition(known, definition, home.timeline.now))
            self._look_ahead(home, definition)

    def drop(self, partition: int) -> None:
        """The partition has passed on, with its schedules."""
        self._homes.pop(partition, None)

    def watches(self, partition: int) -> bool:
        """Whether schedules are at home there, so that jumps of the clock are recorded with their timeline."""
        return partition in self._homes

    def plan(self) -> None:
        """Plans what is due."""
        for home in self._homes.values():
            self._plan(home)

    def next_in(self) -> float | None:
        """Seconds until the next instant is due; None when nothing is planned here."""
        waits = [
            (instant - home.timeline.now) / 1e6
            for home in self._homes.values()
            for instant in home.upcoming.values()
            if instant is not None
        ]
        return min(waits, default=None)

    def _clocks(self) -> tuple[int, int]:
        clock = self._deployment.clock
        return clock.now_us(), int(clock.monotonic() * 1_000_000)

    def _plan(self, home: _Home) -> None:
        home.timeline, jump = t.look(home.timeline, *self._clocks())
        planned = self._at_home[home.owner.partition]
        if jump is not None:
            behind = home.timeline.now - home.timeline.wall
            log.warning("the clock was set", partition=home.owner.partition, seconds=jump.by / 1e6)
            home.owner.append(_about("clock"), (e.Event(e.ClockJumped(jump.by, behind, jump.restart)),))
            if jump.restart is not None:
                for one in planned:
                    self._look_ahead(home, one.definition)
        for one in planned:
            upcoming = home.upcoming[one.definition.name]
            if upcoming is not None and upcoming <= home.timeline.now:
                self._plan_instants(home, one)
                self._look_ahead(home, one.definition)

    def _look_ahead(self, home: _Home, definition: d.Definition) -> None:
        known = home.owner.states.schedules[definition.name]
        home.upcoming[definition.name] = d.upcoming(known, definition.zone)

    def _plan_instants(self, home: _Home, one: _Planned) -> None:
        owner, name = home.owner, one.definition.name
        for instant in d.decide_instants(owner.states.schedules[name], one.definition, home.timeline.now):
            owner.append(_about(name), (e.Event(instant),))
            if instant.job_id is not None:
                self._submit(owner, one, instant.job_id)

    def _submit(self, owner: Owner, one: _Planned, job_id: str) -> None:
        """Appends an instant's job with the turn that plans it."""
        key = (one.key or job_id).encode()
        about = About(job_id, 0, key, causation_id=f"p{owner.partition}@{owner.seq - 1}")
        place = partition_for(key, self._deployment.partitions)
        owner.unnumbered(self._deployment.topics.jobs, place, about, e.Event(one.submitted))


def _about(name: str) -> About:
    return About(None, 0, name.encode())
