"""Periodic jobs: what the owner of a schedule's home partition decides, and what follows from the events. Pure."""

from __future__ import annotations

from datetime import tzinfo
from typing import Literal, NamedTuple

from msgspec.structs import replace

from . import events as e
from . import state as s
from .cron import due_instants, next_instant
from .times import us_datetime

#: What becomes of instants whose time passed while nobody planned them.
Missed = Literal["latest", "all", "none"]
MISSED: tuple[Missed, ...] = ("latest", "all", "none")
#: With `none`, an instant that is seen later than this is missed. Microseconds.
ON_TIME = 60_000_000


class Definition(NamedTuple):
    """A schedule as the app declares it; `tz` names `zone`."""

    name: str
    type: str
    expression: str
    tz: str
    zone: tzinfo
    missed: Missed


def instant_job_id(name: str, instant: int) -> str:
    """The job's id: the same whoever plans the instant, so it becomes one job."""
    return f"cron:{name}:{us_datetime(instant):%Y-%m-%dT%H:%M:%SZ}"


def decide_definition(known: s.Schedule | None, wanted: Definition, now: int) -> tuple[e.Event, ...]:
    """`ScheduleSet` where the definition is new or has changed; another rhythm counts from `now` on."""
    told = (wanted.type, wanted.expression, wanted.tz, wanted.missed)
    if known is not None and told == (known.type, known.expression, known.tz, known.missed):
        return ()
    same = known is not None and (known.expression, known.tz) == (wanted.expression, wanted.tz)
    since = known.since if known is not None and same else now
    return (e.Event(e.ScheduleSet(wanted.name, *told, since)),)


def decide_instants(known: s.Schedule, wanted: Definition, now: int) -> tuple[e.InstantPlanned, ...]:
    """What becomes of the instants up to `now`, by the policy for missed ones:

    - `latest`: the newest runs, those before it are passed over.
    - `all`: each runs, oldest first; of more than DUE_MAX the newest.
    - `none`: the newest runs if it is at most ON_TIME late; the others are passed over.
    """
    after = base(known)
    due, cut = due_instants(wanted.expression, wanted.zone, after, now) if now > after else ((), False)
    if not due:
        return ()
    if wanted.missed == "all":
        return tuple(_planned(wanted, instant, int(cut and instant == due[0])) for instant in due)
    runs = wanted.missed == "latest" or now - due[-1] <= ON_TIME
    return (_planned(wanted, due[-1], len(due) - 1 + int(cut), runs=runs),)


def _planned(wanted: Definition, instant: int, missed: int, *, runs: bool = True) -> e.InstantPlanned:
    return e.InstantPlanned(wanted.name, instant, instant_job_id(wanted.name, instant) if runs else None, missed)


def upcoming(known: s.Schedule, zone: tzinfo) -> int | None:
    """The first instant that has not been planned."""
    return next_instant(known.expression, zone, base(known))


def base(known: s.Schedule) -> int:
    """Instants count from behind this time."""
    return max(known.since, known.last or known.since)


def evolve_set(known: s.Schedule | None, body: e.ScheduleSet) -> s.Schedule:
    """A schedule after its definition."""
    last, job_id = (known.last, known.job_id) if known is not None else (None, None)
    return s.Schedule(body.type, body.expression, body.tz, body.missed, body.since, last, job_id)


def evolve_planned(known: s.Schedule, body: e.InstantPlanned) -> s.Schedule:
    """A schedule after an instant was dealt with."""
    return replace(known, last=body.instant, job_id=body.job_id or known.job_id)


def evolve_restart(known: s.Schedule, restart: int) -> s.Schedule:
    """A schedule after a jump of the clock was taken back: what was planned ahead of it is no hindrance."""
    last = known.last if known.last is None else min(known.last, restart)
    return replace(known, last=last, since=min(known.since, restart))
