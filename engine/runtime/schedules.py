"""What is known of periodic jobs, from the log alone: no app is needed to ask."""

from __future__ import annotations

from typing import Any

from ..core.schedule import upcoming
from ..core.times import format_time
from ..store.newest import read_schedules
from .cron import zone
from .past import Past
from .show import time_or_none


def schedules_shown(past: Past) -> list[dict[str, Any]]:
    """All schedules by name: definition, home partition, newest planned instant and job, next instant.

    A schedule stays listed when the app no longer has it; its next instant then lies in the past.
    """
    found = []
    for partition in range(past.deployment.partitions):
        for name, one in read_schedules(past.partition(partition).store).items():
            following = upcoming(one, zone(one.tz))
            found.append(
                {
                    "name": name,
                    "type": one.type,
                    "expression": one.expression,
                    "tz": one.tz,
                    "missed": one.missed,
                    "partition": partition,
                    "since": format_time(one.since),
                    "last": time_or_none(one.last),
                    "last_job": one.job_id,
                    "next": time_or_none(following),
                }
            )
    return sorted(found, key=lambda shown: str(shown["name"]))
