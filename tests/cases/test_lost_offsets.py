"""A partition whose committed offset its log does not hold stops and says so, and the other partitions go on.

Guards: `processors/worker/inputs.py` compares what is committed with the log's start and end and makes no place up;
`Takeovers` keeps the failure to its partition; `Inbox._take_anew` does the same where retention overtakes a worker
that runs; `IdleWatch._pass` commits past transaction markers, so that no quiet partition is overtaken; what a person
then chooses is `plan_rewind`, and `processors/worker/intake.py` records it. Below the log's start and above its end,
`tests/contract/log` has what the logs themselves say.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.cut import OLD_MS, cut, key_on
from tests.support.payments import wait_until
from tests.support.shop import Shop
from tests.support.slow_app import calls
from tests.support.workers import Running, submit_work

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.log import Append
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.rewinding import plan_rewind, rewind
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.worker import Worker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
KEYS = [key_on(partition, 2) for partition in range(2)]


class Item(BaseModel):
    """A small payload."""

    n: int


class Place:
    """A shop on two partitions, and how often each job ran."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.ran: Counter[str] = Counter()
        app = App("t")

        @app.job(retry=Retry(max_attempts=1))
        async def work(ctx: Context, job: Item) -> None:
            self.ran[ctx.job_id] += 1
            if job.n < 0:
                raise ValueError("no such item")

        @app.job()
        async def family(ctx: Context, job: Item) -> None:
            await ctx.enqueue("work", {"n": job.n}, key=KEYS[0])

        self.shop = Shop(folder, app, partitions=2, log=open_log(settings.log), namespace=settings.namespace)
        self.log, self.jobs, self.group = self.shop.deployment.log, self.shop.topics.jobs, self.shop.deployment.group

    def submit(self, partition: int, *job_ids: str, old: bool = False, n: int = 1) -> None:
        """Submissions of a partition, each a batch of its own; old ones are past their retention."""
        producer = self.log.producer()
        for job_id in job_ids:
            data = values.encode({"n": n})
            body = e.JobSubmitted("work", data, None, values.digest(data), key=KEYS[partition])
            record = e.EventRecord(e.UNNUMBERED, 0, 1, 0, "test", job_id, 0, (e.Event(body),))
            at = OLD_MS if old else self.shop.deployment.clock.now_us() // 1000
            value = self.shop.deployment.codec.encode(record)
            producer.append([Append(self.jobs, partition, KEYS[partition].encode(), value, at)])
        producer.close()

    def committed(self, topic: str, partition: int) -> int | None:
        """What the worker group has committed."""
        states = {state.name: state.offsets for state in self.log.groups(self.group)}
        return states.get(self.group, {}).get((topic, partition))

    def choose(self, to: str, *partitions: int) -> list[e.GroupRewound]:
        """An operator's choice, a worker that finds it, and what was recorded of it."""
        rewind(self.shop.deployment, plan_rewind(self.shop.deployment, "worker", to, partitions), "disk was full")
        assert self.shop.run().stopped == []
        return [body for body in self.shop.bodies() if isinstance(body, e.GroupRewound)]


@pytest.fixture
def place(settings: Settings, tmp_path: Path) -> Iterator[Place]:
    """Two jobs on partition 0 and one on partition 1, all done."""
    place = Place(tmp_path, settings)
    place.submit(0, "a0", "a1", old=True)
    place.submit(1, "b0")
    assert place.shop.run().succeeded == 3
    yield place
    place.log.close()


def test_below_the_start_the_partition_stops_and_a_person_accepts_the_loss(place: Place) -> None:
    place.submit(0, "a2", "a3", old=True)
    place.submit(0, "a4")
    place.submit(1, "b1")
    cut(place.log, place.jobs, 0, 4)
    report = place.shop.run()
    (why,) = report.stopped
    assert f"{place.jobs} partition 0: committed 2, start 4, end 5: 2 offsets were removed" in why
    assert "rewindq rewind worker --partition 0 --to earliest" in why
    assert (report.owned, place.ran["b1"], place.ran["a4"]) == (1, 1, 0)
    assert place.committed(place.jobs, 0) == 2
    planned = plan_rewind(place.shop.deployment, "worker", "earliest", [0])
    assert (planned.before, planned.after, planned.lost) == (
        {(place.jobs, 0): 2},
        {(place.jobs, 0): 4},
        {(place.jobs, 0): 2},
    )
    (rewound,) = place.choose("earliest", 0)
    assert (rewound.input_topic, rewound.from_offset, rewound.to_offset, rewound.reason) == (
        place.jobs,
        2,
        4,
        "disk was full",
    )
    assert place.ran == dict.fromkeys(["a0", "a1", "a4", "b0", "b1"], 1)


def test_beyond_the_end_the_partition_stops_and_what_is_read_again_runs_nothing_twice(place: Place) -> None:
    place.log.set_offsets(place.group, {(place.jobs, 0): 12})
    place.submit(0, "a2")
    place.submit(1, "b1")
    report = place.shop.run()
    (why,) = report.stopped
    assert f"{place.jobs} partition 0: committed 12, start 0, end 3: 9 offsets that were read are gone" in why
    assert (place.ran["b1"], place.ran["a2"]) == (1, 0)
    (rewound,) = place.choose("earliest", 0)
    assert (rewound.from_offset, rewound.to_offset) == (12, 0)
    assert place.ran == dict.fromkeys(["a0", "a1", "a2", "b0", "b1"], 1)


def test_without_a_committed_offset_a_known_partition_stops_and_no_command_comes_twice(place: Place) -> None:
    place.submit(0, "bad", "worse", n=-1)
    place.shop.run()
    place.shop.input(place.shop.topics.commands, "bad", e.RetryCommand("c1", "again", "me"), KEYS[0])
    place.shop.run()
    assert (place.ran["bad"], place.shop.job("bad").status) == (2, s.INVESTIGATION)
    place.log.delete_group(place.group)
    place.shop.input(place.shop.topics.commands, "worse", e.CancelCommand("c2", "enough", "me"), KEYS[0])
    report = place.shop.run()
    assert report.owned == 0
    assert sorted(why.partition(":")[0] for why in report.stopped) == [f"{place.jobs} partition {p}" for p in range(2)]
    assert all("committed none" in why and "has expired or was deleted" in why for why in report.stopped)
    rewound = place.choose("earliest", 0, 1)
    commands = place.shop.topics.commands
    assert {(body.input_topic, body.from_offset) for body in rewound} == {(place.jobs, -1), (commands, -1)}
    # Of those that are kept, the first one was answered and the second one was not.
    assert sorted(body.to_offset for body in rewound if body.input_topic == commands) == [0, 1]
    assert place.ran == {"a0": 1, "a1": 1, "b0": 1, "bad": 2, "worse": 1}
    assert (place.shop.job("bad").status, place.shop.job("worse").status) == (s.INVESTIGATION, s.CANCELLED)


def test_retention_that_overtakes_a_running_worker_stops_that_partition_alone(place: Place) -> None:
    async def overtake(worker: Worker) -> None:
        while len(worker._owners) < 2:
            await asyncio.sleep(0.01)
        worker._member.pause(0)  # as a full queue does
        place.submit(0, "a2", "a3", old=True)
        place.submit(0, "a4")
        cut(place.log, place.jobs, 0, 4)
        worker._member.unpause(0)
        while not worker._takeovers.stopped:
            await asyncio.sleep(0.01)
        place.submit(1, "b1")

    report = place.shop.run(lambda report: report.idle and place.ran["b1"] == 1, overtake)
    (why,) = report.stopped
    assert "committed 2, start 4, end 5" in why
    assert place.ran == dict.fromkeys(["a0", "a1", "b0", "b1"], 1)


def test_events_that_are_gone_are_not_taken_for_a_partition_without_a_past(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [place.shop.topics.lifecycle, place.shop.topics.domain]
    place.log.delete_topics(names)
    place.shop.deployment.ensure_topics()
    report = place.shop.run()
    assert len(report.stopped) == 2 and place.ran == dict.fromkeys(["a0", "a1", "b0"], 1)
    assert all("has no owner's record, but its group has read" in why for why in report.stopped)
    assert "made anew" in capsys.readouterr().out


def test_a_quiet_partition_is_not_overtaken_because_of_a_marker(settings: Settings, tmp_path: Path) -> None:
    place = Place(tmp_path, settings)
    if settings.log.startswith("sqlite:"):  # it has no markers; the log in memory has some on demand
        place.log.close()
        place.shop.deployment.log = place.log = MemoryLog(MemoryState(markers=True))
        place.shop.deployment.ensure_topics()
    place.shop.submit("family", {"n": 1}, "parent", key=KEYS[0])
    place.shop.run(lambda report: report.idle)
    end = place.log.bounds(place.jobs, 0)[1]
    assert (end, place.ran.total()) == (4 if isinstance(place.log, MemoryLog) else 3, 1)
    assert place.committed(place.jobs, 0) == end
    place.log.close()


def test_a_worker_process_tells_in_its_log_and_by_its_exit_code(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit_work(settings, [0.0] * 4)
    with Deployment.open(settings) as deployment:
        jobs = deployment.topics.jobs
        ends = {partition: deployment.log.bounds(jobs, partition)[1] for partition in range(4)}
        bad = max(ends, key=lambda partition: ends[partition])
        deployment.log.set_offsets(deployment.group, {(jobs, bad): 100})
    worker = Running(settings, ledger, "--until-idle")
    try:
        worker.await_line("partition stopped", 30)
        wait_until(lambda: len(calls(ledger)) == 4 - ends[bad], "the other partitions go on")
        summary = worker.end()
    finally:
        worker.kill()
    assert worker.process.returncode == 1
    (why,) = summary["stopped"]
    assert f"{jobs} partition {bad}: committed 100, start 0, end {ends[bad]}" in why
