"""A rewind of the stopped group moves what it says, once, in one step with its record, and repeats nothing outside.

Guards: `set_offsets` of each log takes offsets, expectation and records together (`engine/log/*/`, the contract in
`tests/contract/log/test_groups.py`); `rewind` refuses a running group and asks before it passes anything over
(`engine/runtime/rewinding.py`); the intake knows what was accepted (`decide_submission`), effects their keys. Where
times and positions lead is in `tests/unit/runtime/test_rewinding.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.cut import key_on
from tests.support.payments import wait_until
from tests.support.shop import Shop
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.log import GroupActive, OffsetsMoved
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.rewinding import SkipNotAgreed, plan_rewind, rewind
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.worker import Worker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
KEY = key_on(0, 2)
JOBS = 10


class Item(BaseModel):
    """A small payload."""

    n: int


class Place:
    """Jobs of one partition, each with one effect."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.called: Counter[int] = Counter()
        app = App("t")

        @app.job()
        async def work(ctx: Context, job: Item) -> None:
            await ctx.effect("call", self.called.update, [job.n], key=str(job.n))

        self.shop = Shop(folder, app, partitions=2, log=open_log(settings.log), namespace=settings.namespace)
        self.deployment = self.shop.deployment
        self.jobs = (self.shop.topics.jobs, 0)

    def submit(self, *numbers: int, due: int | None = None) -> None:
        """One job for each number."""
        for n in numbers:
            self.shop.submit("work", {"n": n}, f"j{n}", key=KEY, due=due)

    @property
    def committed(self) -> int:
        """Where the group goes on."""
        (group,) = self.deployment.log.groups(self.deployment.group)
        return group.offsets[self.jobs]

    def set_to(self, offset: int) -> None:
        """A rewind of partition 0 to an offset of it, whichever way is offered for it."""
        planned = plan_rewind(self.deployment, "worker", "earliest", [0])
        rewind(self.deployment, planned._replace(after={self.jobs: offset}), "look again")

    def examined(self) -> list[int]:
        """The offsets that were found to be known, in order."""
        bodies = self.shop.bodies()
        return [body.source_offset for body in bodies if isinstance(body, e.SubmissionDuplicated)]

    def rewound(self) -> list[tuple[int, int]]:
        """What was recorded of rewinds: from, to."""
        return [(b.from_offset, b.to_offset) for b in self.shop.bodies() if isinstance(b, e.GroupRewound)]


@pytest.fixture
def place(settings: Settings, tmp_path: Path) -> Iterator[Place]:
    """Ten jobs that are done, and one that waits for tomorrow."""
    place = Place(tmp_path, settings)
    place.submit(*range(JOBS))
    place.submit(99, due=place.deployment.clock.now_us() + 86_400_000_000)
    place.shop.run(lambda report: report.succeeded == JOBS)
    yield place
    place.deployment.close()


def test_what_is_read_again_is_examined_once_in_order_and_done_no_second_time(place: Place) -> None:
    before = place.committed
    place.set_to(5)
    assert place.committed == 5
    place.submit(20)
    place.shop.run(lambda report: place.called[20] == 1 and report.succeeded == 1)
    assert place.examined() == list(range(5, 11))
    assert place.called == dict.fromkeys([*range(JOBS), 20], 1)
    assert place.rewound() == [(before, 5)]
    assert place.shop.names("j99").count("JobAccepted") == 1 and place.shop.job("j99").attempt == 0
    assert place.shop.fold()[0].states.counts["delayed"] == 1


def test_a_running_group_is_refused_by_name_and_nothing_moves(place: Place) -> None:
    member = threading.Event()
    refused: list[Exception] = []

    async def beside(worker: Worker) -> None:
        while len(worker._owners) < 2:
            await asyncio.sleep(0.01)
        planned = plan_rewind(place.deployment, "worker", "earliest")
        for one in (planned, planned._replace(members=())):  # seen at once; started after it was looked at
            try:
                rewind(place.deployment, one, "now")
            except GroupActive as error:
                refused.append(error)
        member.set()

    before = place.committed
    place.shop.run(lambda report: member.is_set(), beside, name="busy")
    assert len(refused) == 2 and all("busy-" in str(error) for error in refused)
    assert place.committed == before and place.rewound() == [] == place.examined()
    assert place.deployment.log.bounds(place.shop.topics.commands, 0)[1] == 0


def test_of_two_operators_one_is_told_that_the_other_was_faster(place: Place) -> None:
    begun, outcomes = threading.Barrier(2), []
    planned = plan_rewind(place.deployment, "worker", "earliest", [0])

    def operate(offset: int) -> None:
        begun.wait(20)
        try:
            rewind(place.deployment, planned._replace(after={place.jobs: offset}), f"to {offset}")
        except OffsetsMoved:
            outcomes.append(None)
        else:
            outcomes.append(offset)

    threads = [threading.Thread(target=operate, args=(offset,)) for offset in (5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 2 and outcomes.count(None) == 1
    (made,) = [offset for offset in outcomes if offset is not None]
    assert place.committed == made
    place.set_to(3)  # the one who was refused looks again, and is told from where
    place.submit(20)
    place.shop.run(lambda report: place.called[20] == 1)
    assert place.rewound() == [(planned.before[place.jobs], made), (made, 3)]


def test_passing_submissions_over_names_them_and_waits_for_consent(place: Place) -> None:
    before = place.committed
    place.submit(20, 21, 22)
    planned = plan_rewind(place.deployment, "worker", "latest")
    assert planned.skipped == ("j20", "j21", "j22")
    with pytest.raises(SkipNotAgreed, match=r"3 submitted jobs would never be taken in \(j20, j21, j22\): say --skip"):
        rewind(place.deployment, planned, "obsolete")
    assert place.committed == before
    rewind(place.deployment, planned, "obsolete", skip=True)
    place.submit(23)
    place.shop.run(lambda report: place.called[23] == 1)
    assert place.called == dict.fromkeys([*range(JOBS), 23], 1)
    assert place.rewound() == [(before, before + 3)]


def test_a_rewind_survives_a_kill_of_the_worker_that_finds_it(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit_work(settings, [0.0] * JOBS)
    workers = [Running(settings, ledger, "--until-idle")]
    try:
        assert workers[0].end()["succeeded"] == JOBS
        with Deployment.open(settings) as deployment:
            rewind(deployment, plan_rewind(deployment, "worker", "earliest"), "look again")
            moved = sum(deployment.log.bounds(deployment.topics.commands, p)[1] > 0 for p in range(4))
        workers.append(Running(settings, ledger))
        workers[1].await_line("partition taken")
        workers[1].process.kill()
        # The dead one's membership stands for a while: one that ends when it is idle would not wait for its partitions.
        workers.append(Running(settings, ledger))
        wait_until(lambda: event_counts(settings)["SubmissionDuplicated"] >= JOBS, "all were examined")
        workers[2].stop()
    finally:
        for worker in workers:
            worker.kill()
    counts = event_counts(settings)
    assert (counts["SubmissionDuplicated"], counts["GroupRewound"]) == (JOBS, moved)
    assert (counts["JobAccepted"], counts["AttemptStarted"], len(calls(ledger))) == (JOBS, JOBS, JOBS)
