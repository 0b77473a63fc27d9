"""Setting a stopped group's offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.apps import app
from tests.support.logs import Owner
from tests.support.shop import Shop

from rewindq.engine.core.times import BadTime, format_time
from rewindq.engine.ports.log import GroupActive
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.past import NotFound, Past
from rewindq.engine.runtime.rewinding import Rewound, plan_rewind, rewind
from rewindq.engine.runtime.trace import trace_shown


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Five echoes with one key on two partitions, all done."""
    shop = Shop(tmp_path, app, partitions=2)
    with Client(deployment=shop.deployment) as client:
        for number in range(5):
            client.submit("echo", {"text": str(number)}, key="k", job_id=f"e{number}")
    shop.run()
    yield shop
    shop.deployment.close()


def place_of(shop: Shop) -> tuple[str, int]:
    with Past(shop.deployment) as past:
        return shop.topics.jobs, past.find("e0").partition


def accepted(shop: Shop, job_id: str) -> str:
    with Past(shop.deployment) as past:
        return next(
            event["position"] for event in trace_shown(past, job_id)["events"] if event["type"] == "JobAccepted"
        )


def committed(shop: Shop) -> int:
    (group,) = shop.deployment.log.groups(shop.deployment.group)
    return group.offsets[place_of(shop)]


def test_earliest_and_latest(shop: Shop) -> None:
    place = place_of(shop)
    assert plan_rewind(shop.deployment, "worker", "earliest").after[place] == 0
    assert plan_rewind(shop.deployment, "rewindq.worker", "latest").after[place] == 5
    assert plan_rewind(shop.deployment, "worker", "earliest").before[place] == 5
    assert committed(shop) == 5


def test_a_position_leads_to_what_was_taken_in_at_or_before_it(shop: Shop) -> None:
    place = place_of(shop)
    planned = plan_rewind(shop.deployment, "worker", accepted(shop, "e3"))
    assert planned == Rewound("rewindq.worker", {place: 5}, {place: 3})
    partition, _, seq = accepted(shop, "e0").partition("@")
    assert plan_rewind(shop.deployment, "worker", f"{partition}@{int(seq)}").after == {place: 0}
    other = 1 - place[1]
    with pytest.raises(NotFound, match="nothing was taken in"):
        plan_rewind(shop.deployment, "worker", f"p{other}@0")
    with pytest.raises(NotFound, match="reads no partition 7"):
        plan_rewind(shop.deployment, "worker", "p7@0")


def test_a_time_leads_to_the_first_submission_from_then_on(shop: Shop) -> None:
    place = place_of(shop)
    with Past(shop.deployment) as past:
        submitted = past.find("e2").head.submitted_at
    assert plan_rewind(shop.deployment, "worker", format_time(submitted)).after[place] <= 2
    assert plan_rewind(shop.deployment, "worker", "2001-01-01T00:00:00Z").after[place] == 0
    assert plan_rewind(shop.deployment, "worker", "2999-01-01T00:00:00Z").after[place] == 5
    with pytest.raises(BadTime, match="none of earliest, latest"):
        plan_rewind(shop.deployment, "worker", "noon")


def test_what_is_read_again_runs_nothing_twice_and_the_rewind_is_recorded(shop: Shop) -> None:
    rewind(shop.deployment, plan_rewind(shop.deployment, "worker", accepted(shop, "e3")), "look again")
    assert committed(shop) == 3
    assert shop.run().processed == 0
    names = [type(event.body).__name__ for record in shop.records() for event in record.events]
    assert names.count("SubmissionDuplicated") == 2
    (rewound,) = [body for body in shop.bodies() if type(body).__name__ == "GroupRewound"]
    assert (rewound.from_offset, rewound.to_offset, rewound.reason) == (5, 3, "look again")  # type: ignore[attr-defined]


def test_a_running_group_is_refused_by_its_members(shop: Shop) -> None:
    member = shop.deployment.log.join(
        shop.deployment.group, [shop.topics.jobs, shop.topics.commands], Owner(), name="w"
    )
    planned = plan_rewind(shop.deployment, "worker", "earliest")
    assert len(planned.members) == 1
    with pytest.raises(GroupActive, match="is running"):
        rewind(shop.deployment, planned, "x")
    assert committed(shop) == 5
    member.close()
    assert plan_rewind(shop.deployment, "worker", "earliest") == planned._replace(members=())


def test_a_group_that_is_not_there_names_those_that_are(shop: Shop) -> None:
    with pytest.raises(NotFound, match=r"no group 'catalog': there are rewindq\.worker"):
        plan_rewind(shop.deployment, "catalog", "earliest")


def test_another_group_of_the_namespace_moves_on_its_own_topics(shop: Shop) -> None:
    place = (shop.topics.lifecycle, 0)
    end = shop.deployment.log.bounds(*place)[1]
    shop.deployment.log.set_offsets("rewindq.catalog", {place: end})
    planned = plan_rewind(shop.deployment, "catalog", "earliest")
    assert planned == Rewound("rewindq.catalog", {place: end}, {place: 0})
    rewind(shop.deployment, planned, "rebuild")
    (group,) = shop.deployment.log.groups("rewindq.catalog")
    assert group.offsets == {place: 0}
    assert all(shop.deployment.log.bounds(shop.topics.commands, partition)[1] == 0 for partition in range(2))


def test_only_partitions_that_move_are_recorded(shop: Shop) -> None:
    rewind(shop.deployment, plan_rewind(shop.deployment, "worker", "earliest"), "all of it")
    moved = place_of(shop)[1]
    ends = {partition: shop.deployment.log.bounds(shop.topics.commands, partition)[1] for partition in range(2)}
    assert ends == {moved: 1, 1 - moved: 0}
