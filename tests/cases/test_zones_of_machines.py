"""Submitter, worker and reader may stand in three zones: all know the same instants, digests and traces.

Pinned down: `core/values.py` and `core/times.py` take no zone from the machine: instants have an offset, what is
shown is in UTC, what has neither is refused, or stays as it is in a payload. The mark of a doubled hour is
kept as an offset, else refused (`engine/runtime/read_back.py`). Texts of times: `unit/core/test_times.py`.
"""

from __future__ import annotations

import os
import time as time_module
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.cli import Ended, Shell
from tests.support.zoned import AWARE, NAIVE, Times, app

from rewindq.engine.core import values
from rewindq.engine.core.values import ValueRefused
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.context import encode_payload

ZONES = ("Asia/Kolkata", "America/New_York", "Pacific/Apia")
APP = "tests.support.zoned:app"
TOLD = (
    ("replay", "job-0", "--mode", "dry-run", "--app", APP, "--json"),
    ("trace", "job-0", "--json"),
    ("state", "times/kept", "--json"),
    ("state", "times/kept", "--history", "--json"),
    ("jobs", "show", "job-0", "--json"),
    ("trace", "job-0"),
    ("state", "times/kept"),
)


@contextmanager
def standing_in(zone: str) -> Iterator[None]:
    """This process is on a machine of that zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time_module.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time_module.tzset()


@pytest.mark.process
@pytest.mark.timeout(120)
def test_machines_in_three_zones_know_the_same(tmp_path: Path) -> None:
    shell, here = Shell(tmp_path), set()
    for zone in ZONES:
        with standing_in(zone), Client(log=f"sqlite:///{tmp_path}/.rewindq/log.db", app=app) as client:
            here.add(datetime.fromtimestamp(0).isoformat())
            client.submit("keep", Times(aware=AWARE, naive=NAIVE), job_id="job-0")
    assert len(here) == 3  # their zones do differ
    shell.run("worker", "--app", APP, "--until-idle", TZ=ZONES[1])
    told: dict[str, list[Ended]] = {}
    for zone in (ZONES[2], ZONES[0]):
        with standing_in(zone):
            told[zone] = [shell.run_inside(*command) for command in TOLD]
    first, second = told.values()
    assert first == second and all(ended.code == 0 for ended in first)
    replay, trace, state = (ended.json for ended in first[:3])
    assert (replay["outcome"], replay["divergences"]) == ("succeeded", [])
    same = [event["body"]["same"] for event in trace["events"] if event["type"] == "SubmissionDuplicated"]
    assert same == [True, True]
    assert all(event["timestamp"].endswith("Z") for event in trace["events"])
    kept: dict[str, Any] = state["data"]
    assert [datetime.fromisoformat(text) for text in kept["aware"]] == [at.astimezone(UTC) for at in AWARE]
    assert kept["naive"] == [at.isoformat() for at in NAIVE]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(kept["now"])).total_seconds()) < 100


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
