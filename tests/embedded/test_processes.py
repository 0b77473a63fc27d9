"""Several real processes on one embedded log."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.log_process import Child
from tests.support.logs import Worker, join, read_all, record, settle, turn

from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import TopicSpec

pytestmark = pytest.mark.process

TTL_S = 1.5


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.end()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db", lease_ttl=TTL_S)
    log.create_topics([TopicSpec("jobs", 2), TopicSpec("events", 1)])
    yield log
    log.close()


def _owner(log: SqliteLog, children: list[Child]) -> Child:
    child = Child("member", log.path, "g", "jobs", str(TTL_S))
    children.append(child)
    assert child.line() == "owns [0, 1]"
    return child


def _wait_for(worker: Worker, partitions: set[int], seconds: float) -> float:
    """How long it took until the worker owned these."""
    begun = time.monotonic()
    settle([worker], lambda: worker.owner.owned == partitions, seconds)
    return time.monotonic() - begun


def test_processes_append_side_by_side_without_loss(log: SqliteLog, children: list[Child]) -> None:
    children += [Child("append", log.path, "jobs", word, "40") for word in "abc"]
    for child in children:
        assert child.process.wait(60) == 0
    values = [(one.value or b"").decode().split() for one in read_all(log, "jobs")]
    assert len(values) == 360
    for word in "abc":
        mine = [(int(i), int(part)) for name, i, part in values if name == word]
        assert mine == [(i, part) for i in range(40) for part in range(3)]
    for first in range(0, 360, 3):  # the three records of an append lie together
        assert len({(name, i) for name, i, _ in values[first : first + 3]}) == 1


def test_a_killed_process_loses_nothing_that_it_was_told_was_appended(log: SqliteLog, children: list[Child]) -> None:
    child = Child("append", log.path, "jobs", "a", "100000")
    children.append(child)
    acknowledged = [int(child.line().split()[1]) for _ in range(50)]
    child.signal(signal.SIGKILL)
    while line := child.line():
        acknowledged.append(int(line.split()[1]))
    fresh = SqliteLog(log.path)
    offsets = [one.offset for one in read_all(fresh, "jobs")]
    assert offsets == list(range(len(offsets))) and len(offsets) % 3 == 0
    assert acknowledged[-1] < len(offsets)
    fresh.close()


def test_a_killed_owner_is_replaced_at_once(log: SqliteLog, children: list[Child]) -> None:
    child = _owner(log, children)
    assert child.tell("commit 0 alive") == "committed"
    worker = join(log, "g", ["jobs"])
    worker.poll()
    assert worker.owner.owned == set()
    child.signal(signal.SIGKILL)
    assert _wait_for(worker, {0, 1}, 20) < TTL_S * 0.6
    assert [one.value for one in read_all(log, "events")] == [b"alive"]
    assert log.groups("g")[0].members == (worker.member.member_id,)


def test_a_frozen_owner_is_replaced_after_its_time_and_fenced_when_it_wakes(
    log: SqliteLog, children: list[Child]
) -> None:
    child = _owner(log, children)
    worker = join(log, "g", ["jobs"])
    _freeze(log, child)
    assert _wait_for(worker, {0, 1}, 30) > TTL_S * 0.4
    worker.member.commit(turn([record("events", 0, b"new")], {("jobs", 0): 9}, 0))
    child.signal(signal.SIGCONT)
    assert child.tell("commit 0 zombie").startswith("Fenced ")
    assert [one.value for one in read_all(log, "events")] == [b"new"]
    assert log.groups("g")[0].offsets == {("jobs", 0): 9}


def test_a_busy_owner_that_renews_keeps_its_partitions(log: SqliteLog, children: list[Child]) -> None:
    child = _owner(log, children)
    worker = join(log, "g", ["jobs"])
    begun = time.monotonic()
    while time.monotonic() - begun < TTL_S * 1.5:
        worker.poll(0.1)
    assert worker.owner.owned == set()
    assert child.tell("commit 0 mine") == "committed"


def _freeze(log: SqliteLog, child: Child) -> None:
    """Stops the process, but not in the middle of a transaction, where it would keep the write lock."""
    while True:
        child.signal(signal.SIGSTOP)
        probe = sqlite3.connect(log.path, timeout=0.2, isolation_level=None)
        try:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            child.signal(signal.SIGCONT)
        finally:
            probe.close()
