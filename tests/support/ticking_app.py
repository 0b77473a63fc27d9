"""An app with one job each second, written into the ledger of `ops_app`; missed instants are made up for."""

from __future__ import annotations

from pydantic import BaseModel
from tests.support.ops_app import write

from rewindq import App, Context

app = App("ticking")


class Nothing(BaseModel):
    """No payload."""


@app.cron("* * * * * *", tz="UTC", missed="all", name="tick")
@app.job()
async def tick(ctx: Context, job: Nothing) -> None:
    """Says that it ran."""
    write("start", "tick", ctx.job_id)
