"""A fork in its own process and branch: what it leaves in the log, and what it leaves untouched."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rewindq.engine.core import events as e
from rewindq.engine.core.times import format_time
from rewindq.engine.ports.store import Family
from rewindq.engine.replay import branches
from rewindq.engine.replay.branches import BranchExists, NoBranch
from rewindq.engine.replay.forks import ForkOptions, diff_branch, fork
from rewindq.engine.replay.parent import Refused
from rewindq.engine.replay.points import HalfDone, Wanted
from rewindq.engine.replay.source import open_job
from rewindq.engine.store.newest import read_aggregate, read_positions
from rewindq.engine.store.opener import open_overlay_reader

from .conftest import FIXED, SHOP, Shop

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

BEFORE_CACHE = ForkOptions(Wanted(before="cache points/customer:c1"), name="what-if")


def test_the_fixed_handler_shows_exactly_the_changed_fields(shop: Shop) -> None:
    before = shop.production()
    shown = fork(shop.deployment, "job-3", FIXED, BEFORE_CACHE).shown
    assert (shown["branch"], shown["outcome"], shown["divergences"]) == ("what-if", "succeeded", [])
    state = [{"key": "customer:c1", "field": "points", "original": 30, "fork": 50}]
    assert shown["diff"]["state"] == state
    assert re.fullmatch(r"p\d+@\d+", shown["base"])
    assert shop.production() == before
    again = diff_branch(shop.deployment, "job-3", "what-if")
    assert again.shown == shown["diff"] and again.differs


def test_a_group_at_an_attempts_beginning_reads_it_again(shop: Shop) -> None:
    place = shop.deployment
    fork(place, "job-2", SHOP, ForkOptions(name="again"))
    (branch,) = branches.list_branches(place)
    (group,) = place.log.groups("shop.branch.again")
    offset = group.offsets[place.topics.lifecycle, branch.base.partition]
    reader = place.log.reader({(place.topics.lifecycle, branch.base.partition): offset})
    first = place.codec.decode(reader.poll(1, 1.0)[0].value)
    reader.close()
    assert first.seq == branch.base.seq and isinstance(first.events[0].body, e.AttemptStarted)


def test_a_branch_has_topics_a_group_at_its_base_and_a_state(shop: Shop) -> None:
    place = shop.deployment
    shown = fork(place, "job-3", FIXED, BEFORE_CACHE).shown
    (branch,) = branches.list_branches(place)
    listed = branch.shown()
    assert (listed["parent"], listed["mode"], listed["status"]) == ("main", "fork", "complete")
    assert listed["origin"] == {"job_id": "job-3", "attempt": 1}
    assert listed["topics"] == ["shop.branch.what-if.lifecycle", "shop.branch.what-if.domain"]
    (group,) = place.log.groups("shop.branch.what-if")
    with open_job(place, "job-3") as job:
        number, seq = job.past.partition, branch.base.seq
        for topic in (place.topics.lifecycle, place.topics.domain):
            offset = group.offsets[topic, number]
            reader = place.log.reader({(topic, number): 0})
            records = {record.offset: place.codec.decode(record.value) for record in reader.poll(1000, 1.0)}
            reader.close()
            assert all(one.next_seq <= seq for at, one in records.items() if at < offset)
            assert all(one.next_seq > seq for at, one in records.items() if at >= offset)
        assert group.offsets[place.topics.jobs, number] == 3
        overlay = open_overlay_reader(str(branches.overlay_path(place, "what-if")), job.past.store, seq - 1)
        assert read_aggregate(overlay, "customer:c1").data["points"] == 50
        assert read_aggregate(overlay, "customer:c1", seq - 1).data["points"] == 20
        positions = read_positions(overlay)
        assert branch.ended is not None and positions is not None
        assert positions.seq == seq + branch.ended.events
        assert next(overlay.scan(Family.TRACES, b"job-3\0"), None) is not None
        overlay.close()
        assert read_aggregate(job.past.store, "customer:c1").data["points"] == 30
    own = branches.records(place, branch)
    assert {one.branch for one in own} == {"what-if"} and own[0].seq == branch.base.seq
    assert shown["base"] == str(branch.base)


def test_deleting_a_branch_leaves_nothing_behind(shop: Shop) -> None:
    place = shop.deployment
    before, topics = shop.production(), set(place.log.topics())
    fork(place, "job-3", FIXED, BEFORE_CACHE)
    assert set(place.log.topics()) != topics
    branches.delete(place, "what-if")
    assert set(place.log.topics()) == topics
    assert place.log.groups("shop.branch.") == []
    assert not branches.folder(place, "what-if").exists()
    assert branches.list_branches(place) == []
    assert shop.production() == before
    with pytest.raises(NoBranch, match="what-if"):
        branches.delete(place, "what-if")
    assert fork(place, "job-3", FIXED, BEFORE_CACHE).shown["branch"] == "what-if"


def test_a_crash_in_the_middle_is_listed_and_can_be_deleted(shop: Shop) -> None:
    place = shop.deployment
    program = (
        "import os, signal; from rewindq.engine.replay import forks;"
        "from rewindq.engine.runtime.deployment import Deployment;"
        "from rewindq.engine.runtime.settings import load_settings;"
        "forks.replay = lambda *args: os.kill(os.getpid(), signal.SIGKILL);"
        f"d = Deployment.open(load_settings(log={place.log.url!r}, namespace='shop',"
        f" state_dir={str(place.settings.state_dir)!r}));"
        f"forks.fork(d, 'job-3', {FIXED!r}, forks.ForkOptions(name='what-if'))"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    (branch,) = branches.list_branches(place)
    assert branch.status == "incomplete"
    with pytest.raises(Refused, match="incomplete"):
        diff_branch(place, "job-3", "what-if")
    branches.delete(place, "what-if")
    assert branches.list_branches(place) == [] and place.log.groups("shop.branch.") == []


def test_a_running_branch_is_not_deleted(shop: Shop) -> None:
    fork(shop.deployment, "job-3", FIXED, BEFORE_CACHE)
    (branch,) = branches.list_branches(shop.deployment)
    alive = branch._replace(name="alive", ended=None, born=_with_pid(branch.born, os.getppid()))
    branches.register(shop.deployment, alive)
    with pytest.raises(BranchExists, match=str(os.getppid())):
        branches.delete(shop.deployment, "alive")


def _with_pid(born: e.BranchCreated, pid: int) -> e.BranchCreated:
    return msgspec.structs.replace(born, pid=pid)


def test_names_are_taken_once_and_found_by_themselves(shop: Shop) -> None:
    place = shop.deployment
    fork(place, "job-3", FIXED, BEFORE_CACHE)
    with pytest.raises(BranchExists, match="what-if"):
        fork(place, "job-3", FIXED, BEFORE_CACHE)
    names = [fork(place, "job-3", SHOP, ForkOptions()).shown["branch"] for _ in range(2)]
    assert names == ["fork-job-3-1", "fork-job-3-2"]


def test_the_same_code_from_the_beginning_is_the_same(shop: Shop) -> None:
    replayed = fork(shop.deployment, "job-2", SHOP, ForkOptions())
    assert replayed.shown["diff"]["same"] and not replayed.differs


def test_a_half_done_point_is_refused_and_makes_no_branch(shop: Shop) -> None:
    with open_job(shop.deployment, "job-2") as job:
        charge = job.recording.attempt().by_name["charge"]
        inside = job.recording.position(charge.first + 1)
    with pytest.raises(HalfDone, match="charge"):
        fork(shop.deployment, "job-2", SHOP, ForkOptions(Wanted(at=inside)))
    assert branches.list_branches(shop.deployment) == []


def test_a_changed_payload_and_a_time(shop: Shop) -> None:
    with open_job(shop.deployment, "job-2") as job:
        started = job.recording.attempt().started
        assert started is not None
        moment = format_time(started.record.timestamp - 1)
    options = ForkOptions(Wanted(time=moment), attempt=1, changes={"amount": "7"})
    shown = fork(shop.deployment, "job-2", FIXED, options).shown
    assert shown["outcome"] == "failed" and shown["failed_step"] == "charge"
    assert shown["divergences"][0]["kind"] == "request_differs"
    with pytest.raises(Refused, match="no 'nothing'"):
        fork(shop.deployment, "job-2", FIXED, ForkOptions(changes={"nothing.here": "1"}))


def test_code_that_goes_around_ctx_is_stopped_in_a_fork_too(shop: Shop) -> None:
    shop.order(4, trick="socket")
    shop.work()
    before = shop.production()
    replayed = fork(shop.deployment, "job-4", SHOP, ForkOptions(name="naughty"))
    assert replayed.blocked and "replay_shop.py:" in replayed.shown["violations"][0]["place"]
    assert shop.production() == before
    assert branches.find_branch(shop.deployment, "naughty").shown()["outcome"] == "blocked"


def test_an_app_that_connects_while_it_is_imported_leaves_no_branch(shop: Shop) -> None:
    replayed = fork(shop.deployment, "job-1", "tests.support.connecting_app:app", ForkOptions())
    assert replayed.blocked and replayed.shown["branch"] is None
    assert branches.list_branches(shop.deployment) == []


def test_a_fork_of_a_fork_is_refused(shop: Shop) -> None:
    with pytest.raises(Refused, match="fork of branch 'what-if' is not supported"):
        fork(shop.deployment, "job-1", SHOP, ForkOptions(parent="what-if"))


def test_a_branch_is_of_one_job(shop: Shop) -> None:
    fork(shop.deployment, "job-3", FIXED, BEFORE_CACHE)
    with pytest.raises(Refused, match="fork of job job-3"):
        diff_branch(shop.deployment, "job-1", "what-if")


def test_a_fork_needs_no_store(shop: Shop, tmp_path: Path) -> None:
    shown = fork(shop.deployment, "job-3", FIXED, BEFORE_CACHE).shown
    bare = shop.deployment.settings.model_copy(update={"state_dir": tmp_path / "elsewhere"})
    shop.deployment.settings = bare
    other = fork(shop.deployment, "job-3", FIXED, BEFORE_CACHE._replace(name="bare")).shown
    assert other["diff"] == shown["diff"]
