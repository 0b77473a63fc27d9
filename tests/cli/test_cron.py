"""Periodic jobs on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import Shell

pytestmark = pytest.mark.process
APP = """
from pydantic import BaseModel
from rewindq import App, Context

app = App("bell")


class Item(BaseModel):
    n: int = 0


@app.cron("*/1 * * * * *", name="each-second")
@app.cron("0 9 * * MON-FRI", tz="Asia/Jakarta", missed="all", name="morning", payload={"n": 1})
@app.job()
async def ring(ctx: Context, job: Item) -> None:
    pass
"""


def test_a_worker_plans_and_the_list_shows_it(shell: Shell) -> None:
    (Path(shell.folder) / "bell.py").write_text(APP)
    assert shell.run_inside("cron", "list").code == 5
    worker = shell.start("worker", "--app", "bell:app", "--processes", "2")
    try:
        waited = shell.run("submit", "ring", "--payload", "{}", "--wait", "--json")
        assert waited.code == 0
        each = {"last_job": None}
        while each["last_job"] is None:
            found = shell.run("cron", "list", "--json")
            each, morning = found.json["schedules"] or [each, None]
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert str(each["last_job"]).startswith("cron:each-second:")
    assert morning is not None
    assert morning["next"][11:] == "02:00:00.000000Z"
    shown = shell.run_inside("cron", "list").out
    assert "0 9 * * MON-FRI" in shown
    assert shell.run_inside("verify", "--json").json["violations"] == []
    jobs = shell.run_inside("jobs", "list", "--type", "ring", "--json").json["jobs"]
    planned = [job["job_id"] for job in jobs if job["job_id"].startswith("cron:each-second:")]
    assert len(planned) == len(set(planned)) >= 1
