"""Periodic jobs as an app declares them, checked when the app is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ValidationError

from ..core.cron import check_expression
from ..core.names import valid_job_id
from ..core.schedule import MISSED, Definition, Missed, instant_job_id
from .context import encode_payload

if TYPE_CHECKING:
    from .app import JobType


class BadSchedule(ValueError):
    """A schedule is declared wrongly. Names it and what to change."""


class Cron(NamedTuple):
    """What `@app.cron` was given."""

    function: Callable[..., Any]
    expression: str
    tz: str
    missed: Missed
    name: str | None
    payload: BaseModel | Mapping[str, Any] | None


class PeriodicJob(NamedTuple):
    """A schedule with each job's payload, and the key that the payload gives it (None: the job's id)."""

    definition: Definition
    payload: bytes
    key: str | None


def zone(name: str) -> tzinfo:
    """A time zone by its IANA name. Raises BadSchedule."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise BadSchedule(f"there is no time zone {name!r}: use an IANA name such as Asia/Jakarta") from error


def periodic_job(cron: Cron, job_type: JobType) -> PeriodicJob:
    """A checked schedule. Raises BadSchedule."""
    name = cron.name or job_type.name
    if not valid_job_id(instant_job_id(name, 0)):
        raise BadSchedule(f"schedule name {name!r} makes no job id: use up to 170 printable characters")
    if cron.missed not in MISSED:
        raise BadSchedule(f"schedule {name!r}: missed= is one of {', '.join(MISSED)}, got {cron.missed!r}")
    try:
        check_expression(cron.expression)
        found = zone(cron.tz)
        payload = encode_payload({} if cron.payload is None else cron.payload)
        model = job_type.model.model_validate_json(payload)
        key = job_type.key_of(model) or job_type.resource_of(model)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]  # an input may be a secret
        place = ".".join(map(str, first["loc"]))
        raise BadSchedule(f"schedule {name!r}: {job_type.name} refuses its payload: {place}: {first['msg']}") from error
    except ValueError as error:
        raise BadSchedule(f"schedule {name!r}: {error}") from error
    return PeriodicJob(Definition(name, job_type.name, cron.expression, cron.tz, found, cron.missed), payload, key)
