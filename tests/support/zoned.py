"""An app that keeps times, and times that zones of machines would change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from rewindq import App, Context

app = App("zoned")
BERLIN = ZoneInfo("Europe/Berlin")
#: Both passes of the doubled hour, the missing hour, a fixed instant; as the zone of no machine has them.
AWARE = [
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
]
#: Local times without a zone: in New York and Apia some are doubled or missing.
NAIVE = [datetime(2026, 11, 1, 1, 30), datetime(2026, 3, 8, 2, 30), datetime(2011, 12, 30, 12)]


class Times(BaseModel):
    """Instants, and times of a wall somewhere."""

    name: str = "kept"
    aware: list[datetime]
    naive: list[datetime]


@app.job(resource="times:{name}")
async def keep(ctx: Context, job: Times) -> Times:
    """Into the trace, the state and the result."""
    ctx.decide("as they came", [at.isoformat() for at in (*job.aware, *job.naive)])
    began = await ctx.load("times", job.name)
    changes: dict[str, Any] = {"aware": job.aware, "naive": [at.isoformat() for at in job.naive], "now": ctx.now()}
    await ctx.save("times", job.name, changes, expected=began.version)
    return job
