"""A submission that kills whoever reads its payload is parked unread after two deaths; what is behind it goes on.

Pinned down: fences tell where their owners' inputs began (`processors/worker/takeover.py: _taken`), suspects are read
on trial in a process of its own (`processors/worker/trial.py`), and the intake parks what died there without reading it
(`processors/worker/intake.py: _deadly`). Jobs that kill their worker when they run are in `test_poison.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import rough_app
from tests.support.shop import Shop

from rewindq.engine.core import state as s
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.app import load_app
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import takeover, trial
from rewindq.processors.worker.report import Report, WorkerOptions
from rewindq.processors.worker.worker import Worker

PLACE = "tests.support.rough_app:app"
LETTERS = ["a", "exit", "b", "exit", "c"]


@pytest.fixture
def shop(settings: Settings, tmp_path: Path) -> Iterator[Shop]:
    log = open_log(settings.log)
    rough_app.begun.clear()
    yield Shop(tmp_path, rough_app.app, log=log, partitions=1, namespace=settings.namespace)
    log.close()


def _run(shop: Shop) -> Report:
    worker = Worker(shop.deployment, load_app(PLACE), WorkerOptions(name="w"))
    return asyncio.run(asyncio.wait_for(worker.run(lambda report: report.idle), 60))


def test_a_submission_that_kills_its_readers_is_parked_unread(shop: Shop) -> None:
    for number, letter in enumerate(LETTERS):
        shop.submit("post", {"text": letter}, f"l{number}", key="letters")
    for _ in range(2):
        with pytest.raises(rough_app.Gone):
            _run(shop)
    assert rough_app.begun.count("exit") == 2

    report = _run(shop)

    assert rough_app.begun.count("exit") == 2, "nobody reads it again, but a process on trial"
    assert (report.succeeded, report.failed) == (3, 0)
    for number, letter in enumerate(LETTERS):
        job = shop.job(f"l{number}")
        assert (job.status, job.attempt) == ((s.INVESTIGATION, 0) if letter == "exit" else (s.SUCCEEDED, 1))
    failure = shop.job("l1").failure
    assert failure is not None and failure.failure_class == "attempt_lost"
    assert failure.reason.endswith("workers were lost, and a process that read it on trial (exit code 1)")
    shop.submit("post", {"text": "later"}, "later", key="letters")
    assert _run(shop).succeeded == 1
    assert verify(shop.deployment)["violations"] == []


@pytest.mark.parametrize("idle", [1, trial.STALLED_MAX + 1])
def test_a_partition_that_passed_on_while_nothing_waited_is_under_no_suspicion(
    shop: Shop, idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial takes seconds, in which the partition stands still: a deploy over an idle queue must not cause one."""
    tried: list[object] = []
    monkeypatch.setattr(takeover, "find_killers", lambda *place: tried.append(place) or {})
    for _ in range(idle):
        _run(shop)
    shop.submit("post", {"text": "exit"}, "first", key="letters")
    for _ in range(trial.STALLED_MAX):
        with pytest.raises(rough_app.Gone):
            _run(shop)
    assert tried == [], "who found nothing there has not died of it"
    with pytest.raises(rough_app.Gone):
        _run(shop)
    assert len(tried) == 1


def test_what_dies_on_trial_is_told_and_nothing_else_is(tmp_path: Path) -> None:
    shop = Shop(tmp_path, rough_app.app)
    for number, letter in enumerate(["a", "kill", "b"]):
        shop.submit("post", {"text": letter}, f"l{number}")
    shop.append(shop.topics.jobs, b"no record")
    shop.submit("of another app", {"text": "kill"}, "other")
    found = trial.find_killers(shop.deployment, PLACE, 0, 0)
    assert list(found) == [1] and found[1].endswith("(SIGKILL)")
    assert trial.find_killers(shop.deployment, "tests.support.rough_app:nothing", 0, 0) == {}
