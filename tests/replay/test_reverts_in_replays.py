"""A revert is part of the past: later jobs are replayed and forked on the state that it brought back."""

from __future__ import annotations

import pytest

from rewindq.engine.replay.forks import ForkOptions, fork
from rewindq.engine.replay.points import Wanted
from rewindq.engine.replay.replays import dry_run
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.reverts import plan_of
from rewindq.engine.runtime.verify import verify

from .conftest import FIXED, SHOP, Shop

pytestmark = pytest.mark.process


def test_jobs_behind_a_revert_are_replayed_on_what_it_brought_back(shop: Shop) -> None:
    place = shop.deployment
    with Client(deployment=place) as client:
        assert client.past.aggregate("customer:c1").data["orders"] == 3
        client.revert("job-3", "wrong customer", attempt=1)
        shop.order(4)
        shop.work()
        customer = client.past.aggregate("customer:c1")
        assert (customer.data["orders"], customer.data["last"]) == (3, "receipt-o4")
        assert (customer.version, customer.writer) == (5, "job-4")
        assert plan_of(client.past, "job-3").already
    before = shop.production()
    for job_id in ("job-2", "job-3", "job-4"):
        assert dry_run(place, job_id, app=SHOP).shown["status"] == "same", job_id
    # Its points come from what was there when its attempt began: the two orders of before the reverted one.
    shown = fork(place, "job-4", FIXED, ForkOptions(Wanted(before="cache points/customer:c1"), name="behind")).shown
    assert shown["diff"]["state"] == [{"key": "customer:c1", "field": "points", "original": 40, "fork": 60}]
    # And in a fork of the reverted job nothing is known of its revert.
    shown = fork(place, "job-3", FIXED, ForkOptions(Wanted(before="cache points/customer:c1"), name="own")).shown
    assert shown["diff"]["state"] == [{"key": "customer:c1", "field": "points", "original": 30, "fork": 50}]
    assert shop.production() == before
    assert verify(place)["violations"] == []


def test_a_branch_is_never_reverted(shop: Shop) -> None:
    place = shop.deployment
    options = ForkOptions(Wanted(before="cache points/customer:c1"), name="what-if")
    fork(place, "job-3", FIXED, options)
    topics = {name: place.log.bounds(name, 0)[1] for name in place.log.topics("shop.branch.what-if")}
    with Client(deployment=place) as client:
        client.revert("job-3", "wrong customer")
        shop.work()
    assert {name: place.log.bounds(name, 0)[1] for name in topics} == topics
