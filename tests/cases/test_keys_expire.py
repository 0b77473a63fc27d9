"""What is known under an effect's key may expire, and still nobody ever takes "dropped" for "never done".

The guards: `core/expiry.py` (`may_expire`: only what has an outcome, whose job ended long enough ago, that no job
which is not over relies on, and no compensation; `evolve_expired`: a stub stays), `core/decide.py` (`decide_effect`
puts who meets a stub in doubt), `store/expiring.py` (`TiedKeys`), `processors/worker/expiry.py` (a bounded batch a
turn; answers that no event tells of yet are flushed first). How `keep_keys` is held against what the log keeps is in
`tests/cases/test_keys_kept_too_short.py`; the rules as a table in `tests/unit/core/test_expiry.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.recorded import dry_run, fork
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.ports.store import Family
from rewindq.engine.replay.source import open_job
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.effects import Resolution
from rewindq.engine.runtime.log_time import LogTime
from rewindq.engine.runtime.rewinding import plan_rewind, rewind
from rewindq.engine.runtime.verify import verify
from rewindq.engine.store.opener import open_reader
from rewindq.processors.worker import expiry
from rewindq.processors.worker.worker import Worker

pytestmark = pytest.mark.timeout(120)
HOUR = 3600.0


class Order(BaseModel):
    """`mood`: fail, wait (a day for the next attempt) or go on."""

    order: int
    mood: str = ""


class Refused(Exception):
    """The handler gives up for good."""


class Till:
    """A shop whose orders are charged once each; `calls` counts what the gateway saw, by its key."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.asked: list[str] = []
        self.moods = {"fail": True, "wait": True}
        self.app = App("till")
        self.app.classify(Refused, FailureClass.VALIDATION)
        rules = {"resource": "order:{order}", "retry": Retry(max_attempts=3, base=86_400, cap=86_400, jitter=0)}
        for name, more in {"plain": {}, "safe": {"idempotent": True}, "looked_up": {"on_doubt": self.find}}.items():
            self.app.job(name, **rules)(self._handler(more))
        self.shop = Shop(folder, self.app, **{"keep_keys": HOUR, **settings})
        self.clock = self.shop.deployment.clock = Movable()

    def _handler(self, more: dict[str, Any]) -> Callable[..., Any]:
        async def handler(ctx: Context, job: Order) -> str:
            receipt: str = await ctx.effect("charge", self.charge, job.order, key="k", **more)
            if job.mood == "fail" and self.moods["fail"]:
                raise Refused("no such customer")
            if job.mood == "wait" and self.moods["wait"]:
                raise ConnectionError("the warehouse is closed")
            return receipt

        return handler

    async def charge(self, order: int, idempotency_key: str) -> str:
        self.calls[idempotency_key] += 1
        return f"receipt {order}"

    async def find(self, order: int, idempotency_key: str) -> str:
        self.asked.append(idempotency_key)
        return f"found {order}"

    def submit(self, job_id: str, order: int, mood: str = "", type_: str = "plain") -> None:
        self.shop.submit(type_, {"order": order, "mood": mood}, job_id, key=f"order:{order}")

    def dropped(self) -> list[str]:
        return [key for body in self.shop.bodies() if isinstance(body, e.KeysExpired) for key in body.keys]

    def run_until_told(self, kind: type[e.Body], count: int) -> None:
        """A new worker each time: a takeover. `count` is of the keys for dropped ones."""

        async def look(worker: Worker) -> None:
            while sum(len(getattr(b, "keys", "1")) for b in self.shop.bodies() if isinstance(b, kind)) < count:
                await asyncio.sleep(0.1)
            worker.stop()

        self.shop.run(lambda report: False, look)

    def run_until_dropped(self, count: int) -> None:
        self.run_until_told(e.KeysExpired, count)

    def sweep_twice(self) -> None:
        """Long enough that anything that may be dropped is."""
        looks: list[float] = []
        original = expiry.Expiry._go_on

        def counted(self_: expiry.Expiry, sweep: Any, now: float, cutoff: int) -> None:
            original(self_, sweep, now, cutoff)
            if sweep.next - now > expiry.LOOK_EVERY:
                looks.append(now)
                self.clock.added += self_._pause

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(expiry.Expiry, "_go_on", counted)
            self.shop.run(lambda report: len(looks) >= 2 * self.shop.deployment.partitions)

    def known(self, key: str) -> str | None:
        found = self.shop.fold()
        return next((r.status for tail in found if (r := tail.states.idempotency(key)) is not None), None)

    def retry(self, job_id: str) -> s.JobState:
        with Client(deployment=self.shop.deployment) as client:
            client.retry(job_id, "mended")
        self.shop.run(lambda report: report.processed == 1)
        return self.shop.job(job_id)


def key(order: int) -> str:
    return f"order:{order}/charge/k"


@pytest.fixture
def till(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """On the embedded log, where a test does not ask for Kafka."""
    monkeypatch.setattr(expiry, "LOOK_MAX", 2)
    monkeypatch.setattr(expiry, "LOOK_EVERY", 0.0)
    given: dict[str, Any] = {"partitions": 2}
    if getattr(request, "param", "") == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_bootstrap')}?session_timeout_ms=2000"
        given |= {"partitions": 1, "log": open_kafka(url), "namespace": f"keys-{uuid.uuid4().hex[:8]}"}
    found = Till(tmp_path, **given)
    yield found
    checked = verify(found.shop.deployment)
    assert checked["ok"], checked["violations"]
    assert checked["digest"] == checked["rebuilt_digest"] is not None
    found.shop.deployment.close()


@pytest.mark.parametrize("till", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
def test_a_rewind_a_redrive_and_duplicates_after_the_expiry_call_nothing(till: Till) -> None:
    for order in range(5):
        till.submit(f"done{order}", order)
    till.submit("parked", 5, "fail")
    till.submit("waits", 6, "wait")
    till.shop.run(lambda report: report.succeeded == 5 and report.failed == 1 and report.retried == 1)
    till.clock.added += 2 * HOUR

    till.run_until_dropped(5)
    till.sweep_twice()
    events = [body for body in till.shop.bodies() if isinstance(body, e.KeysExpired)]
    assert max(len(body.keys) for body in events) <= 2
    assert sorted(till.dropped()) == [key(order) for order in range(5)]
    assert [till.known(key(order)) for order in (0, 5, 6)] == [s.EXPIRED, s.DONE, s.DONE]

    rewind(till.shop.deployment, planned := plan_rewind(till.shop.deployment, "worker", "earliest"), "test")
    assert all(offset == 0 for offset in planned.after.values())
    for order in range(5):
        till.submit(f"done{order}", order)
    till.run_until_told(e.SubmissionDuplicated, 12)
    till.moods["fail"] = False
    assert till.retry("parked").status == s.SUCCEEDED

    for order in range(5):
        till.submit(f"again{order}", order)
    till.shop.run(lambda report: report.failed == 5)
    assert till.calls == {key(order): 1 for order in range(7)}
    failure = till.shop.job("again3").failure
    assert failure is not None and failure.failure_class == "in_doubt"
    assert "job done3 made this call" in failure.reason and f"effects resolve {key(3)}" in failure.reason


def test_what_is_dropped_takes_no_place_but_that_it_was_used(till: Till) -> None:
    till.submit("done", 1)
    till.shop.run(lambda report: report.succeeded == 1)
    till.clock.added += 2 * HOUR
    till.run_until_dropped(1)
    kept = []
    for partition in range(2):
        with closing(open_reader(str(till.shop.deployment.store_path(partition)))) as store:
            kept += list(store.history(Family.IDEMPOTENCY, key(1).encode()))
    (stub,) = kept
    assert s.decode_idempotency(stub.value).answer is None


def test_a_person_a_lookup_or_the_other_side_decides_what_a_dropped_call_came_to(till: Till) -> None:
    for order, kind in enumerate(["plain", "safe", "looked_up"]):
        till.submit(f"first{order}", order, type_=kind)
    till.shop.run(lambda report: report.succeeded == 3)
    till.clock.added += 2 * HOUR
    till.run_until_dropped(3)
    for order, kind in enumerate(["plain", "safe", "looked_up"]):
        till.submit(f"again{order}", order, type_=kind)
    till.shop.run(lambda report: report.succeeded == 2 and report.failed == 1)
    assert till.calls == {key(0): 1, key(1): 2, key(2): 1}
    assert till.asked == [key(2)]
    assert values.decode(till.shop.job("again2").result or b"") == "found 2"
    with Client(deployment=till.shop.deployment) as client:
        client.resolve(key(0), Resolution(True, b'"receipt 0"'), "seen at the gateway")
    job = till.retry("again0")
    assert (job.status, values.decode(job.result or b"")) == (s.SUCCEEDED, "receipt 0")
    assert till.calls[key(0)] == 1


def test_a_job_that_was_answered_by_another_ones_note_keeps_it(till: Till) -> None:
    till.submit("first", 1)
    till.shop.run(lambda report: report.succeeded == 1)
    till.submit("second", 1, "fail")
    till.shop.run(lambda report: report.failed == 1)
    till.clock.added += 2 * HOUR
    till.sweep_twice()
    assert till.dropped() == []
    till.moods["fail"] = False
    assert till.retry("second").status == s.SUCCEEDED
    till.sweep_twice()
    assert till.dropped() == [key(1)]
    assert till.calls == {key(1): 1}


def test_an_answer_that_no_event_tells_of_yet_is_told_first(tmp_path: Path) -> None:
    """A handler has its answer and goes on; the event that says so is decided before its key can be dropped."""
    till = Till(tmp_path)
    till.submit("first", 1)
    till.shop.run()
    till.clock.added += 2 * HOUR
    answered, go_on = asyncio.Event(), asyncio.Event()

    @till.app.job("slow", resource="order:{order}")
    async def slow(ctx: Context, job: Order) -> str:
        receipt: str = await ctx.effect("charge", till.charge, job.order, key="k")
        answered.set()
        await go_on.wait()
        return receipt

    with pytest.MonkeyPatch.context() as patch:
        looks: list[bool] = []
        original = expiry.Expiry._go_on

        def held(self: expiry.Expiry, sweep: Any, now: float, cutoff: int) -> None:
            if answered.is_set():
                original(self, sweep, now, cutoff)
                looks.append(True)
                go_on.set()

        patch.setattr(expiry.Expiry, "_go_on", held)
        till.submit("second", 1, type_="slow")
        till.shop.run(lambda report: report.succeeded == 1)
    assert looks
    assert till.dropped() == []
    assert verify(till.shop.deployment)["ok"]


def test_what_was_compensated_says_for_ever_under_which_key_to_call_next(tmp_path: Path) -> None:
    till = Till(tmp_path)

    async def refund(receipt: str, order: int, idempotency_key: str) -> str:
        till.calls[idempotency_key] += 1
        return "refunded"

    @till.app.job("undoable", resource="order:{order}", retry=Retry(max_attempts=1))
    async def undoable(ctx: Context, job: Order) -> str:
        receipt: str = await ctx.effect("charge", till.charge, job.order, key="k", compensate="refund")
        if till.moods["fail"]:
            raise Refused("no such customer")
        return receipt

    till.app.compensation("refund")(refund)
    till.submit("a", 1, type_="undoable")
    till.shop.run()
    till.moods["fail"] = False
    assert till.retry("a").status == s.SUCCEEDED
    till.clock.added += 2 * HOUR
    till.sweep_twice()
    assert till.dropped() == [f"{key(1)}/2"]
    till.submit("b", 1, type_="undoable")
    till.shop.run()
    assert till.shop.job("b").status == s.INVESTIGATION
    assert till.calls == {key(1): 1, f"{key(1)}/compensate": 1, f"{key(1)}/2": 1}
    assert verify(till.shop.deployment)["ok"]


def test_a_wall_clock_that_is_set_ahead_drops_nothing(tmp_path: Path) -> None:
    till = Till(tmp_path)
    clock = till.clock
    till.shop.deployment.time = LogTime(lambda: clock.now_us() - int(clock.ahead * 1e6), clock.monotonic)
    till.submit("done", 1)
    till.shop.run()
    till.clock.ahead = 30 * 24 * HOUR
    till.sweep_twice()
    assert till.dropped() == []
    till.clock.added += 2 * HOUR
    till.run_until_dropped(1)


def test_what_partitions_share_is_kept(tmp_path: Path) -> None:
    till = Till(tmp_path, partitions=2)

    @till.app.job("shared", resource="order:{order}")
    async def shared(ctx: Context, job: Order) -> str:
        return str(await ctx.effect("fee", till.charge, 7, global_key="fee"))

    for order in range(4):
        till.submit(f"first{order}", order, type_="shared")
    till.shop.run()
    till.clock.added += 2 * HOUR
    till.sweep_twice()
    for order in range(4):
        till.submit(f"again{order}", order, type_="shared")
    assert till.shop.run().succeeded == 4
    assert (till.dropped(), till.calls) == ([], {"/fee/fee": 1})
    assert verify(till.shop.deployment)["ok"]


def test_replays_of_jobs_whose_keys_were_dropped_tell_the_same_as_before(tmp_path: Path) -> None:
    till = Till(tmp_path)
    till.submit("first", 1)
    till.shop.run()
    till.clock.added += 2 * HOUR
    till.run_until_dropped(1)
    till.submit("again", 1)
    till.shop.run()
    for job_id, outcome in (("first", "succeeded"), ("again", "failed")):
        with open_job(till.shop.deployment, job_id) as job:
            replayed = dry_run(till.shop.deployment, job, till.app)
            started = job.recording.attempt(None).started
            assert started is not None
            forked = fork(till.shop.deployment, job, till.app, started.seq)
        assert (replayed.outcome, replayed.divergences) == (outcome, [])
        assert (forked.outcome, forked.divergences) == (outcome, [])
    assert till.calls == {key(1): 1}


def test_without_the_policy_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(expiry.Expiry, "_go_on", lambda *given: looked.append(given))
    till = Till(tmp_path, keep_keys=None)
    till.submit("done", 1)
    till.shop.run()
    till.clock.added += 1000 * 24 * HOUR
    till.shop.run()
    assert (looked, till.dropped()) == ([], [])
