"""Dry-run, fork and deletion on a real Kafka: the same story, the same isolation."""

from __future__ import annotations

import time

import pytest

from rewindq.engine.replay import branches
from rewindq.engine.replay.forks import ForkOptions, diff_branch, fork
from rewindq.engine.replay.points import Wanted
from rewindq.engine.replay.replays import dry_run

from .conftest import FIXED, SHOP, Shop

pytestmark = [pytest.mark.process, pytest.mark.kafka, pytest.mark.timeout(240)]

#: Seconds in which a broker has carried a deletion out.
SETTLE = 30.0


def test_a_fork_on_kafka_leaves_production_as_it_was(kafka_shop: Shop) -> None:
    place = kafka_shop.deployment
    mine = f"{place.settings.namespace}."
    before, topics = kafka_shop.production(), set(place.log.topics(mine))
    assert dry_run(place, "job-3", app=SHOP).shown["status"] == "same"
    options = ForkOptions(Wanted(before="cache points/customer:c1"), name="what-if")
    shown = fork(place, "job-3", FIXED, options).shown
    assert shown["diff"]["state"] == [{"key": "customer:c1", "field": "points", "original": 30, "fork": 50}]
    assert diff_branch(place, "job-3", "what-if").shown == shown["diff"]
    (group,) = place.log.groups(place.topics.branch_group("what-if"))
    assert group.members == () and len(group.offsets) == 3
    assert kafka_shop.production() == before
    branches.delete(place, "what-if")
    deadline = time.monotonic() + SETTLE
    while set(place.log.topics(mine)) != topics or place.log.groups(f"{mine}branch."):
        assert time.monotonic() < deadline, "the broker still has the branch"
    assert branches.list_branches(place) == []
    assert kafka_shop.production() == before
