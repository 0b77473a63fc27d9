"""A member that lost its partitions appends nothing, whichever guard is the one that still stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.support.kafka import Space, event, poll_until

from rewindq.engine.log.kafka.ownership import read_metadata
from rewindq.engine.ports.log import Fenced, LogError, Turn

pytestmark = pytest.mark.kafka

# Joins, owns both partitions, and then only does what its input says. It never polls again, so all that it
# knows of its ownership is from before it was frozen.
_WORKER = """
import sys
from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.ports.log import Append, Fenced, Turn
url, jobs, events, group = sys.argv[1:]
owned = set()
class Ownership:
    def assigned(self, partitions): owned.update(partitions)
    def revoked(self, partitions): owned.difference_update(partitions)
    def lost(self, partitions): owned.difference_update(partitions)
member = open_kafka(url).join(group, [jobs, events], Ownership(), name="zombie")
while owned != {0, 1}:
    member.poll(0.02)
def commit(value):
    member.commit(Turn([Append(events, 0, b"key", value, 1)], {(jobs, 0): 9}, frozenset({0})))
commit(b"before")
print("owns", flush=True)
for line in sys.stdin:
    try:
        commit(b"zombie")
        print("committed", flush=True)
    except Fenced:
        print("fenced", flush=True)
"""


@pytest.fixture
def zombie(space: Space) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _WORKER, space.url, space.jobs, space.events, space.group]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "owns\n"
            yield process
        finally:
            process.kill()


@pytest.mark.process
def test_a_frozen_workers_late_commit_is_fenced(space: Space, zombie: subprocess.Popen[str]) -> None:
    assert zombie.stdin is not None
    assert zombie.stdout is not None
    os.kill(zombie.pid, signal.SIGSTOP)
    member, told = space.join("heir")
    poll_until(lambda: told.owned == {0, 1}, member)
    member.commit(Turn([event(space.events, "heir")], {}, frozenset({0})))
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.stdin.write("commit\n")
    zombie.stdin.flush()
    assert zombie.stdout.readline() == "fenced\n"
    assert [record.value for record in space.read(space.events)] == [b"before", b"heir"]
    assert space.committed()[0] == 9
    member.close()


@pytest.mark.process
def test_a_killed_workers_partitions_pass_on(space: Space, zombie: subprocess.Popen[str]) -> None:
    zombie.kill()
    member, told = space.join("heir")
    poll_until(lambda: told.owned == {0, 1}, member)
    assert told.calls == [("assigned", [0, 1])]
    member.close()


def test_a_commit_without_membership_is_never_sent(space: Space) -> None:
    """The broker would take it for a plain client's: this is the one guard against that."""
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    dropped = member._metadata.raw.replace(member._metadata.member_id.encode(), b"")
    dropped = dropped.replace(dropped[7:11], b"\xff\xff\xff\xff", 1)
    member._metadata = read_metadata(dropped)
    assert not member._metadata.joined
    with pytest.raises(Fenced):
        member.commit(Turn([event(space.events, "x")], {}, frozenset({0})))
    assert space.read(space.events) == []
    member.close()


def test_group_metadata_in_an_unknown_form_is_refused() -> None:
    with pytest.raises(LogError, match="unknown form"):
        read_metadata(b"CGMDv3:\0\0\0\1group\0member\0")


def test_a_partition_that_is_not_owned_is_fenced_locally(space: Space) -> None:
    member, told = space.join()
    with pytest.raises(Fenced, match="does not own"):
        member.commit(Turn([event(space.events, "early")], {}, frozenset({0})))
    with pytest.raises(Fenced, match="does not own"):
        member.start(0, {space.jobs: 0})
    member.close()
    assert told.calls == []


def test_a_rebalance_amid_commits_loses_and_doubles_nothing(space: Space) -> None:
    """A commits without pause while B joins and leaves: what A was told is exactly what the log holds."""
    first, told = space.join("first")
    poll_until(lambda: told.owned == {0, 1}, first)
    done: dict[int, list[bytes]] = {0: [], 1: []}
    refused: list[Exception] = []
    ended = threading.Event()

    def commit_on() -> None:
        number = 0
        while not ended.is_set():
            for partition in (0, 1):
                number += 1
                append = event(space.events, str(number), partition)
                try:
                    first.commit(Turn([append], {}, frozenset({partition})))
                    done[partition].append(append.value or b"")
                except Fenced:
                    # Only ever for a partition that was handed over.
                    if partition in told.owned:
                        refused.append(AssertionError(f"{partition} is owned and was fenced"))
                except Exception as error:
                    refused.append(error)

    committer = threading.Thread(target=commit_on)
    committer.start()
    try:
        for _ in range(3):
            second, second_told = space.join("second")
            poll_until(lambda told_2=second_told: len(told_2.owned) == 1, first, second)
            before = {p: len(values) for p, values in done.items()}
            mine = next(iter(told.owned))
            poll_until(lambda p=mine, n=before: len(done[p]) > n[p] + 5, first, second)
            second.close()
            poll_until(lambda: told.owned == {0, 1}, first)
    finally:
        ended.set()
        committer.join()
    assert refused == []
    for partition in (0, 1):
        assert [record.value for record in space.read(space.events, partition)] == done[partition]
    first.close()


def test_a_partition_is_handed_over_only_after_its_last_commit(space: Space) -> None:
    first, told = space.join("first")
    poll_until(lambda: told.owned == {0, 1}, first)
    order: list[str] = []

    def last_words(partitions: list[int]) -> None:
        first.commit(Turn([event(space.events, "last", partitions[0])], {}, frozenset(partitions)))
        order.append("last commit")

    told.on_revoked = last_words
    second, second_told = space.join("second")
    poll_until(lambda: second_told.owned, first, second)
    assert order == ["last commit"]
    (moved,) = second_told.owned
    assert [record.value for record in space.read(space.events, moved)] == [b"last"]
    with pytest.raises(Fenced):
        first.commit(Turn([], {}, frozenset({moved})))
    second.close()
    first.close()
