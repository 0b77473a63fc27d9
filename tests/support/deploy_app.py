"""The next version of `ops_app`: it has a type more, with a resource, and a periodic job of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from tests.support import ops_app
from tests.support.ops_app import write

from rewindq import App, Context

app = App("ops")
app.job("other")(ops_app.other)


class Fresh(BaseModel):
    """A payload whose every field this version knows."""

    model_config = ConfigDict(extra="forbid")
    number: int = 0


@app.cron("* * * * * *", tz="UTC", missed="none", name="fresh")
@app.job(resource="fresh:{number}")
async def fresh(ctx: Context, job: Fresh) -> None:
    """Counts its runs."""
    write("start", "fresh", ctx.job_id)
    found = await ctx.load("fresh", job.number)
    await ctx.save("fresh", job.number, {"runs": found.get("runs", 0) + 1}, expected=found.version)
