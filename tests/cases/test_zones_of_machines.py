"""Submitter, worker and reader may stand in three zones: all know the same instants, digests and traces.

Pinned down: `core/values.py` and `core/times.py` take no zone from the machine: instants have an offset, what is
shown is in UTC, what has neither is refused, or stays as it is in a payload. The mark of a doubled hour is
kept as an offset, else refused (`engine/runtime/read_back.py`). Texts of times: `unit/core/test_times.py`.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.cli import Shell
from tests.support.zoned import AWARE, NAIVE

from rewindq.engine.core import values
from rewindq.engine.core.values import ValueRefused
from rewindq.engine.runtime.context import encode_payload

ZONES = ("Asia/Kolkata", "America/New_York", "Pacific/Apia")
APP = "tests.support.zoned:app"
TOLD = (
    ("jobs", "show", "job-0", "--json"),
    ("trace", "job-0", "--json"),
    ("trace", "job-0"),
    ("state", "times/kept", "--history", "--json"),
    ("state", "times/kept"),
)


def _submit(shell: Shell, job_id: str, zone: str) -> str:
    command = [sys.executable, "-m", "tests.support.zoned", job_id]
    done = subprocess.run(
        command, cwd=shell.folder, env={**shell.environment, "TZ": zone}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.process
@pytest.mark.timeout(120)
def test_machines_in_three_zones_know_the_same(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    here = {_submit(shell, "job-0", zone) for zone in ZONES}
    assert len(here) == 3  # their zones do differ
    shell.run("worker", "--app", APP, "--until-idle", TZ=ZONES[1])
    for command in TOLD:
        told = [shell.run(*command, TZ=zone) for zone in (ZONES[2], ZONES[0])]
        assert told[0] == told[1] and told[0].code == 0, command
    trace = shell.run("trace", "job-0", "--json", TZ=ZONES[2]).json
    same = [event["body"]["same"] for event in trace["events"] if event["type"] == "SubmissionDuplicated"]
    assert same == [True, True]
    assert all(event["timestamp"].endswith("Z") for event in trace["events"])
    state: dict[str, Any] = shell.run("state", "times/kept", "--json", TZ=ZONES[2]).json["data"]
    assert [datetime.fromisoformat(text) for text in state["aware"]] == [at.astimezone(UTC) for at in AWARE]
    assert state["naive"] == [at.isoformat() for at in NAIVE]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(state["now"])).total_seconds()) < 100
    for zone in (ZONES[2], ZONES[0]):
        replay = shell.run("replay", "job-0", "--mode", "dry-run", "--app", APP, "--json", TZ=zone).json
        assert (replay["outcome"], replay["divergences"]) == ("succeeded", [])


class Wall(BaseModel):
    """Times of a wall."""

    at: datetime | None = None
    hour: time | None = None


def test_the_mark_of_a_doubled_hour_is_kept_or_refused() -> None:
    first, second = (values.decode(values.encode(at)) for at in AWARE[:2])
    assert (second - first).total_seconds() == 3600
    for lost in (Wall(at=datetime(2026, 11, 1, 1, 30, fold=1)), Wall(hour=time(1, 30, fold=1))):
        with pytest.raises(ValueRefused, match="would be read back as another one"):
            encode_payload(lost)
    with pytest.raises(ValueRefused, match="second pass of an hour"):
        values.encode({"hour": time(1, 30, fold=1)})
