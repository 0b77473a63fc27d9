"""A revert on a real Kafka: commands to several partitions, decided by whoever owns them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.support.changes import HERE, THERE, Place, rows

from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.verify import verify

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


def test_a_job_of_two_partitions_is_reverted(kafka_bootstrap: str, tmp_path: Path) -> None:
    place = Place(tmp_path, log=open_log(f"kafka://{kafka_bootstrap}"), namespace=f"revert-{uuid.uuid4().hex[:8]}")
    place.change("before", {HERE: {"a": 1}, THERE: {"a": 2}})
    place.change("bad", {HERE: {"a": 7}, THERE: {"a": 8, "b": 1}})
    place.change("later", {THERE: {"b": 5}}, item=THERE)

    done = place.revert("bad")

    assert (done.state, done.waiting) == ("done", ())
    assert sorted(rows(done.reverted)) == sorted(
        [(f"item:{HERE}", "a", "set", 7, 1), (f"item:{THERE}", "a", "set", 8, 2)]
    )
    assert [(row["field"], row["written_by"]) for row in done.refused] == [("b", "later")]
    assert (place.data(HERE), place.data(THERE)) == ({"a": 1}, {"a": 2, "b": 5})
    again = place.revert("bad")
    assert (again.reverted, len(again.already), len(again.refused)) == ([], 2, 1)
    found = verify(place.shop.deployment)
    assert (found["violations"], found["digest"]) == ([], found["rebuilt_digest"])
    place.shop.deployment.close()
