"""Limits of a job type: how many at once in a worker, and how many at once under a key."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import SubmissionRefused


class Call(BaseModel):
    """A call for a tenant."""

    tenant: str = "a"
    n: int = 0


class Gauge:
    """Counts what runs at once, by tenant."""

    def __init__(self, **rules: Any) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.all_most = 0
        self.app = App("t")
        self.app.job("call", **rules)(self.call)

    async def call(self, ctx: Context, job: Call) -> None:
        self.now[job.tenant] += 1
        self.most[job.tenant] = max(self.most[job.tenant], self.now[job.tenant])
        self.all_most = max(self.all_most, self.now.total())
        await asyncio.sleep(0.01)
        self.now[job.tenant] -= 1


def test_a_types_concurrency_bounds_it_in_a_worker(tmp_path: Path) -> None:
    gauge = Gauge(concurrency=3)
    shop = Shop(tmp_path, gauge.app, partitions=4)
    for n in range(20):
        shop.submit("call", {"n": n}, f"j{n}")
    assert shop.run().succeeded == 20
    assert gauge.all_most == 3


@pytest.mark.parametrize(("concurrency", "most"), [(None, 1), (2, 2)])
def test_a_concurrency_key_bounds_each_key(tmp_path: Path, concurrency: int | None, most: int) -> None:
    gauge = Gauge(concurrency=concurrency, concurrency_key="tenant:{tenant}")
    shop = Shop(tmp_path, gauge.app, partitions=4)
    for n in range(24):
        shop.submit("call", {"tenant": "abc"[n % 3], "n": n}, f"j{n}")
    assert shop.run().succeeded == 24
    assert gauge.most == Counter({"a": most, "b": most, "c": most})
    assert gauge.all_most > most


def test_another_key_is_refused_by_the_client_and_at_intake(tmp_path: Path) -> None:
    gauge = Gauge(concurrency_key="tenant:{tenant}")
    shop = Shop(tmp_path, gauge.app, partitions=4)
    with Client(deployment=shop.deployment, app=gauge.app) as client:
        client.submit("call", {"tenant": "a"}, job_id="own", key="tenant:a")
        with pytest.raises(SubmissionRefused, match="at home under 'tenant:a'"):
            client.submit("call", {"tenant": "a"}, key="tenant:b")
    shop.submit("call", {"tenant": "a"}, "foreign", key="tenant:b")
    payload = values.encode({"tenant": "b"})
    astray = e.JobSubmitted("call", payload, None, values.digest(payload), "tenant:b")
    home = partition_for(b"tenant:b", 4)
    shop.input(shop.topics.jobs, "astray", astray, "tenant:b", partition=(home + 1) % 4)
    shop.run()
    assert shop.fold()[home].states.job("astray") is not None
    failure = shop.job("foreign").failure
    assert failure is not None
    assert "leave the key out" in failure.reason
    assert [shop.job(job_id).status for job_id in ("own", "astray")] == [s.SUCCEEDED] * 2


def test_a_job_from_before_the_rule_is_parked(tmp_path: Path) -> None:
    gauge, later = Gauge(), Gauge(concurrency_key="tenant:{tenant}")
    shop = Shop(tmp_path, gauge.app, partitions=1)
    clock = shop.deployment.clock = Movable()
    shop.submit("call", {}, "before", due=clock.now_us() + 60_000_000)
    shop.run(until=lambda report: "JobAccepted" in shop.names("before"))
    clock.added = 61
    shop.app = later.app
    shop.submit("call", {}, "after")
    shop.run()
    assert shop.job("after").status == s.SUCCEEDED
    failure = shop.job("before").failure
    assert failure is not None
    assert "accepted without the key that its type's limits need" in failure.reason


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"concurrency_key": "t:{tenant}", "key": "n:{n}"}, "concurrency_key= and key= .* different partitions"),
        (
            {"concurrency_key": "t:{tenant}", "resource": "n:{n}"},
            "concurrency_key= and resource= .* leave resource= out",
        ),
        ({"concurrency_key": "t:{missing}"}, "not a plain field"),
        ({"concurrency": 0}, "must be 1 or more"),
    ],
)
def test_rules_that_cannot_hold_are_refused(rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(AppError, match=reason):
        Gauge(**rules)


def test_the_same_rule_twice_is_one_home() -> None:
    job_type = Gauge(concurrency_key="t:{tenant}", resource="t:{tenant}").app.types["call"]
    assert job_type.key_of(Call()) == job_type.resource_of(Call()) == "t:a"
