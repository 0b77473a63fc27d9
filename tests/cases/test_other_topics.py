"""Recovery ends where the log ends, brings back exactly its fold, and takes topics made anew for another log.

Guards: `Tail.catch_up` reads by position up to the log's end, markers and gaps included, and `check_positions` compares
the store's mark with the log's and its topics' identity (`engine/runtime/recover.py`); `_open_and_fold` in
`processors/worker/takeover.py` sets a store of other topics aside; nothing starts before `take_over` has returned.
Torn, stale and missing records are in `tests/unit/runtime/test_recover.py`, stores that are damaged in
`tests/contract/store/test_damage.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.cut import cut
from tests.support.payments import wait_until
from tests.support.shop import Shop
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq import DELETE, App, Context
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
NUMBER = next(n for n in range(100) if partition_for(f"document:{n}".encode(), 2) == 0)
KEY = f"document:{NUMBER}"


class Change(BaseModel):
    """Fields of the one document; an empty one deletes what is there."""

    text: str


class Place:
    """A document on partition 0 of two, and what its jobs found."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.found: list[tuple[int, dict[str, Any]]] = []
        app = App("t")

        @app.job(key=lambda job: KEY)
        async def change(ctx: Context, job: Change) -> None:
            document = await ctx.load("document", NUMBER)
            self.found.append((document.version, dict(document.data)))
            await ctx.save("document", NUMBER, {"text": job.text or DELETE}, expected=document.version)

        # It has markers behind each commit, as a broker has; the embedded one has none.
        log = MemoryLog(MemoryState(markers=True)) if settings.log.startswith("sqlite:") else open_log(settings.log)
        self.state_dir = folder / "state"
        self.shop = Shop(folder, app, partitions=2, log=log, namespace=settings.namespace)
        self.log = self.shop.deployment.log

    def change(self, *texts: str) -> None:
        """One job after the other, each behind a worker of its own."""
        for text in texts:
            number = len(self.found)
            self.shop.submit("change", {"text": text}, f"job-{number}", key=KEY)
            report = self.shop.run()
            assert (report.stopped, len(self.found)) == ([], number + 1)

    def forget(self) -> None:
        """Removes the local stores."""
        shutil.rmtree(self.state_dir)


@pytest.fixture
def place(settings: Settings, tmp_path: Path) -> Iterator[Place]:
    """Nothing was done yet: no record at all."""
    found = Place(tmp_path, settings)
    yield found
    found.log.close()


def test_a_store_that_is_gone_comes_back_from_none_one_or_many_records(place: Place) -> None:
    place.shop.run()
    place.forget()
    place.change("one")
    place.forget()
    place.change("two", "")
    place.forget()
    place.change("four")
    assert place.found == [(0, {}), (1, {"text": "one"}), (2, {"text": "two"}), (3, {})]
    report = verify(place.shop.deployment)
    assert report["ok"], report
    assert place.shop.aggregate(KEY).version == 4


def test_topics_made_anew_are_another_log_and_the_store_is_rebuilt(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.change("old", "older")
    topics = place.shop.topics
    place.log.delete_topics([topics.jobs, topics.commands, topics.lifecycle, topics.domain, topics.investigation])
    place.shop.deployment.ensure_topics()
    place.found.clear()
    place.change("new")
    assert place.found == [(0, {})]
    told = capsys.readouterr().out
    assert "store set aside" in told and "was made anew: it is rebuilt from the log" in told
    folder = place.shop.deployment.partition_folder(0)
    assert sorted(found.name for found in folder.iterdir()) == ["g1.damaged-1", "g2"]
    place.change("newer")
    assert place.found[1:] == [(1, {"text": "new"})]
    assert verify(place.shop.deployment)["ok"]


def test_a_past_that_was_removed_is_missed_only_without_a_store(place: Place) -> None:
    place.change("one", "two")
    topic = place.shop.topics.lifecycle
    low = place.log.bounds(topic, 0)[1] - 2  # the last record, and the marker behind it
    if isinstance(place.log, MemoryLog):
        partition = place.log.state.topics[topic][0]
        del partition.records[:-1], partition.offsets[:-1]
        partition.low = partition.offsets[0]
    else:
        cut(place.log, topic, 0, low)
    assert place.log.bounds(topic, 0)[0] == low
    place.change("three")
    assert place.found[-1] == (2, {"text": "two"})
    place.forget()
    (why,) = place.shop.run().stopped
    assert topic in why and "offset 0 was asked for" in why and str(low) in why


def test_recovery_that_is_killed_twice_ends_whole_and_nothing_ran_before(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit_work(settings, [0.0] * 20)
    workers = [Running(settings, ledger, "--until-idle")]
    try:
        assert workers[0].end()["succeeded"] == 20
        for _ in range(2):
            shutil.rmtree(settings.state_dir)
            workers.append(Running(settings, ledger))
            wait_until(lambda: any(settings.state_dir.rglob("g1")), "its recovery has begun")
            workers[-1].process.kill()
            workers[-1].process.wait()
        workers.append(Running(settings, ledger, "--name", "last"))
        wait_until(lambda: sum("partition taken" in line for line in workers[-1].told) == 4, "all are taken")
        workers[-1].stop()
    finally:
        for worker in workers:
            worker.kill()
    assert (
        len(calls(ledger)) == event_counts(settings)["JobSucceeded"] == event_counts(settings)["AttemptStarted"] == 20
    )
    with Deployment.open(settings) as deployment:
        report = verify(deployment)
    assert report["ok"], report
