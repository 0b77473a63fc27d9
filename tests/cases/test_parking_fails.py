"""A job that fails for good is parked once and runs no handler again, also while the investigation topic takes nothing.

Guards: `MovedToInvestigation` commits with its source's offset in one turn, and the topic's entry comes behind it, in a
turn of its own (`processors/worker/parking.py`), which is tried again; the fold keeps what waits (`EntryPosted` in
`engine/core/fold.py`), and the topic is read before anything is posted a second time (`Parking._there`). What an entry
keeps of a large original is cut or referred to by `Intake._keep`. The commit of any turn that fails is in
`tests/worker/test_commit_outcomes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.payments import owns_something, wait_until
from tests.support.shop import Shop
from tests.support.workers import Running, event_counts

from rewindq import App, Context, Retry
from rewindq.engine.codec.avro import Codec
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.log import Append, AppendRefused, LogError, OutcomeUnknown
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import read_from
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.report import Report

pytestmark = [pytest.mark.timeout(120)]
BAD = 10


class Item(BaseModel):
    """A small payload."""

    n: int


class TopicDown:
    """Commits that hold entries fail while `down`, before or after they are made."""

    def __init__(self, topic: str, error: LogError | None, *, after: bool = False) -> None:
        self._topic, self._error, self._after = topic, error, after
        self.refused = 0

    def mend(self) -> None:
        """Everything is taken from now on."""
        self._error = None

    def _fail(self, appends: Sequence[Append]) -> None:
        if self._error is not None and any(one.topic == self._topic for one in appends):
            self.refused += 1
            raise self._error

    def before_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Fails without a trace."""
        if not self._after:
            self._fail(appends)

    def after_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Fails although it is made."""
        if self._after:
            self._fail(appends)


class Place:
    """Good jobs and bad ones on one partition, and how often each ran."""

    def __init__(self, folder: Path, settings: dict[str, str], log: MemoryLog | None = None) -> None:
        self.ran: Counter[str] = Counter()
        app = App("t")

        @app.job(retry=Retry(max_attempts=1))
        async def work(ctx: Context, job: Item) -> None:
            self.ran[ctx.job_id] += 1
            if job.n < 0:
                raise ValueError("no such item")

        if log is None and "log" in settings:
            given = {name: value for name, value in settings.items() if name != "log"}
            self.shop = Shop(folder, app, log=open_log(settings["log"]), **given)
        else:
            self.shop = Shop(folder, app, log=log, **settings)
        self.topic = self.shop.topics.investigation

    def submit(self, *job_ids: str) -> None:
        """Those whose name begins with b are bad."""
        for job_id in job_ids:
            self.shop.submit("work", {"n": -1 if job_id.startswith("b") else 1}, job_id)

    def entries(self) -> Counter[str]:
        """What stands on the investigation topic, by job."""
        return entries(self.shop.deployment, self.topic)


def entries(deployment: Deployment, topic: str) -> Counter[str]:
    """The jobs of the entries of every partition."""
    found: Counter[str] = Counter()
    for partition in range(deployment.partitions):
        low, _ = deployment.log.bounds(topic, partition)
        for record in read_from(deployment, topic, partition, low):
            found[Codec().decode(record.value).job_id or ""] += 1
    return found


@pytest.mark.parametrize(
    ("error", "after"),
    [(AppendRefused("not allowed"), False), (OutcomeUnknown("no answer"), False), (OutcomeUnknown("no answer"), True)],
    ids=["refused", "unknown and not made", "unknown and made"],
)
@pytest.mark.parametrize("restart", [False, True], ids=["same worker", "next worker"])
def test_entries_wait_for_the_topic_and_come_once(tmp_path: Path, error: LogError, after: bool, restart: bool) -> None:
    faults = TopicDown("rewindq.investigation", error, after=after)
    place = Place(tmp_path, {}, MemoryLog(MemoryState(faults=faults)))
    bad = [f"b{n}" for n in range(BAD)]
    good = [f"g{n}" for n in range(BAD)]
    place.submit(*(job_id for pair in zip(bad, good, strict=True) for job_id in pair))

    def refused(report: Report) -> bool:
        assert report.succeeded <= BAD
        return faults.refused > 0 and report.succeeded + report.failed == 2 * BAD

    if restart:
        report = place.shop.run(lambda report: refused(report) and (after or report.unparked == BAD))
        assert (report.failed, report.succeeded) == (BAD, BAD)
    else:
        place.shop.run(lambda report: refused(report) and _mended(faults) and report.idle and report.unparked == 0)
        assert place.entries().total() == BAD
    faults.mend()
    place.submit("g-late")
    for _ in range(2):
        assert place.shop.run().unparked == 0
    assert place.entries() == dict.fromkeys(bad, 1)
    assert place.ran == dict.fromkeys([*bad, *good, "g-late"], 1)
    assert {place.shop.job(job_id).status for job_id in bad} == {s.INVESTIGATION}
    assert {place.shop.job(job_id).status for job_id in good} == {s.SUCCEEDED}
    posted = [body.entry for body in place.shop.bodies() if isinstance(body, e.EntryPosted)]
    assert len(posted) == len(set(posted)) == BAD


def _mended(faults: TopicDown) -> bool:
    faults.mend()
    return True


@pytest.mark.process
def test_a_topic_that_is_gone_holds_up_its_entries_alone(settings: Settings, tmp_path: Path) -> None:
    place = Place(tmp_path, {"log": settings.log, "namespace": settings.namespace})
    place.shop.deployment.log.delete_topics([place.topic])
    place.submit("b0", "g0", "b1", "g1")
    report = place.shop.run(lambda report: report.idle and report.unparked == 2)
    assert (report.succeeded, report.failed) == (2, 2)
    place.shop.deployment.ensure_topics()
    place.submit("g2")
    place.shop.run()
    assert place.entries() == {"b0": 1, "b1": 1}
    assert place.ran == dict.fromkeys(["b0", "b1", "g0", "g1", "g2"], 1)
    place.shop.deployment.close()


@pytest.mark.process
def test_entries_survive_kills_between_parking_and_posting(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        topic, jobs = deployment.topics.investigation, deployment.topics.jobs
        workers = [Running(settings, ledger)]
        try:
            wait_until(lambda: owns_something(settings), "all partitions are taken")
            deployment.log.delete_topics([topic])
            producer = deployment.log.producer()
            producer.append([Append(jobs, number % 4, b"k", b"no record", 1) for number in range(8)])
            producer.close()
            wait_until(lambda: event_counts(settings)["MovedToInvestigation"] == 8, "all are parked")
            workers[0].await_line("wait for the investigation topic")
            workers[0].process.kill()
            workers.append(Running(settings, ledger))  # it makes the topic that is missing
            workers[1].await_line("partition taken")
            workers[1].process.kill()
            workers.append(Running(settings, ledger))
            workers[2].await_line("partition taken")
            wait_until(lambda: event_counts(settings)["EntryPosted"] == 8, "all entries are there")
            summary = workers[2].stop()
        finally:
            for worker in workers:
                worker.kill()
        assert summary["unparked"] == 0
        assert entries(deployment, topic) == {f"{jobs}-p{n % 4}-{n // 4}": 1 for n in range(8)}


@pytest.mark.parametrize("blobs", [True, False], ids=["with a blob store", "without"])
def test_a_large_original_is_referred_to_or_said_to_be_cut(
    tmp_path: Path, blobs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, {}, MemoryLog())
    if not blobs:
        monkeypatch.setattr(place.shop.deployment, "blobs", None)
    place.shop.append(place.shop.topics.jobs, b"x" * 100_000, "k")
    place.shop.run()
    (parked,) = [body for body in place.shop.bodies() if isinstance(body, e.MovedToInvestigation)]
    assert place.entries().total() == 1
    if blobs:
        assert place.shop.deployment.blobs is not None
        assert place.shop.deployment.blobs.get(parked.original_ref or "") == b"x" * 100_000
    else:
        assert (len(parked.original or b""), parked.original_ref) == (16 * 1024, "cut from 100000 bytes")
