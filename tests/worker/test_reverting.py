"""Reverts: what a job changed goes back to what it was, on every partition, and what others wrote since stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.changes import ELSEWHERE, HERE, THERE, Place, rows

from rewindq.engine.core import events as e
from rewindq.engine.core import revert, values
from rewindq.engine.runtime.client import Client, CommandRefusedError, NotFound
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.reverts import plan_of
from rewindq.engine.runtime.trace import trace_shown
from rewindq.engine.runtime.verify import verify


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    assert verify(place.shop.deployment)["violations"] == []
    place.shop.deployment.close()


def test_every_partition_gets_back_what_it_held(place: Place) -> None:
    place.change("before", {HERE: {"a": 1, "gone": 5}, THERE: {"a": 2}})
    place.change("bad", {HERE: {"a": 7, "gone": None}, THERE: {"a": 8, "new": 9}, ELSEWHERE: {"a": 3}})
    place.change("more", {HERE: {"other": 1}})
    wanted = sorted(
        [
            (f"item:{HERE}", "a", "set", 7, 1),
            (f"item:{HERE}", "gone", "restore", None, 5),
            (f"item:{THERE}", "a", "set", 8, 2),
            (f"item:{THERE}", "new", "delete", 9, None),
            (f"item:{ELSEWHERE}", "a", "delete", 3, None),
        ]
    )
    planned = place.plan("bad")
    assert (planned.state, sorted(rows(planned.reverted)), planned.refused) == ("planned", wanted, [])
    assert place.data(HERE) == {"a": 7, "other": 1}, "a dry-run changes nothing"
    assert not any(isinstance(body, e.RevertDecided) for body in place.shop.bodies())

    done = place.revert("bad")

    assert (done.state, sorted(rows(done.reverted)), done.refused, done.waiting) == ("done", wanted, [], ())
    assert [(row["key"], row["version"]) for row in planned.reverted] == [
        (row["key"], row["version"]) for row in done.reverted
    ]
    assert (place.data(HERE), place.data(THERE), place.data(ELSEWHERE)) == (
        {"a": 1, "gone": 5, "other": 1},
        {"a": 2},
        {},
    )
    newest = place.history(HERE)[-1]
    assert (newest["version"], newest["parent"], newest["job_id"]) == (4, 3, "bad")
    assert newest["reverted"].items() >= {"by": "ann", "reason": "a mistake", "attempt": None}.items()
    with Past(place.shop.deployment) as past:
        events = trace_shown(past, "bad")["events"]
    told = [event["type"] for event in events if event["body"].get("reason") == "a mistake"]
    assert sorted(told) == ["RevertDecided"] * 3 + ["StateReverted"] * 3, "the trace tells it on all partitions"
    assert told == [event["type"] for event in events[-6:]], "behind all that the job did"


def test_what_others_wrote_since_stays_and_is_named(place: Place) -> None:
    place.change("before", {THERE: {"a": 1, "b": 1}})
    place.change("bad", {THERE: {"a": 2, "b": 2}})
    place.change("later", {THERE: {"b": 3}}, item=THERE)
    done = place.revert("bad")
    assert rows(done.reverted) == [(f"item:{THERE}", "a", "set", 2, 1)]
    (refused,) = done.refused
    assert refused.items() >= {"key": f"item:{THERE}", "field": "b", "written_by": "later", "version": 3}.items()
    assert refused["position"].startswith("p1@")
    assert refused["why"] == "later has written it since"
    assert place.data(THERE) == {"a": 1, "b": 3}
    (decided,) = [body for body in place.shop.bodies("bad") if isinstance(body, e.RevertDecided)]
    assert [told["field"] for told in values.decode(decided.refused)] == ["b"]


def test_a_chain_is_undone_from_its_end(place: Place) -> None:
    place.change("one", {HERE: {"a": 1}})
    place.change("two", {HERE: {"a": 2}})
    assert place.plan("one").refused[0]["written_by"] == "two"
    place.revert("two")
    done = place.revert("one")
    assert (done.refused, place.data(HERE)) == ([], {})


def test_the_second_time_nothing_is_left(place: Place) -> None:
    place.change("bad", {HERE: {"a": 1}, THERE: {"a": 1}})
    place.revert("bad")
    before = [body for body in place.shop.bodies() if isinstance(body, e.RevertDecided)]
    again = place.revert("bad")
    assert (again.reverted, again.refused, again.state) == ([], [], "done")
    assert {row["key"] for row in again.already} == {f"item:{HERE}", f"item:{THERE}"}
    assert [body for body in place.shop.bodies() if isinstance(body, e.RevertDecided)] == before, "nothing was asked"


def test_a_command_that_is_read_again_counts_once(place: Place) -> None:
    place.change("before", {HERE: {"a": 1}})
    place.change("bad", {HERE: {"a": 2}})
    command = e.RevertCommand("c1", "r", "ann")

    def give() -> None:
        record = e.EventRecord(e.UNNUMBERED, 0, 0, 0, "test", "bad", 0, (e.Event(command, resource=f"item:{HERE}"),))
        place.shop.append(place.shop.topics.commands, place.shop.deployment.codec.encode(record), partition=0)
        place.shop.run()

    give()
    place.change("later", {HERE: {"a": 5}})
    give()
    decided = [body for body in place.shop.bodies() if isinstance(body, e.RevertDecided)]
    assert (len(decided), place.data(HERE)) == (1, {"a": 5})


def test_attempts_are_reverted_one_by_one(place: Place) -> None:
    place.shop.submit("twice", {}, "bad", key=f"item:{HERE}")
    place.shop.run()
    assert place.data(HERE) == {"a": 2, "b": 1}
    first = place.plan("bad", 1)
    assert rows(first.reverted) == [(f"item:{HERE}", "b", "delete", 1, None)]
    assert [row["why"] for row in first.refused] == ["attempt 2 of the job itself has written it since"]
    done = place.revert("bad", 2)
    assert (rows(done.reverted), place.data(HERE)) == ([(f"item:{HERE}", "a", "set", 2, 1)], {"a": 1, "b": 1})
    assert place.history(HERE)[-1]["reverted"]["attempt"] == 2
    assert rows(place.revert("bad").reverted) == [
        (f"item:{HERE}", "a", "delete", 1, None),
        (f"item:{HERE}", "b", "delete", 1, None),
    ]
    assert place.data(HERE) == {}
    with pytest.raises(NotFound, match="has no attempt 9: it has 1, 2"):
        place.plan("bad", 9)


def test_a_job_that_has_not_ended_is_refused(place: Place) -> None:
    place.shop.submit("slow", {"item": HERE}, "slow", key=f"item:{HERE}")
    with Past(place.shop.deployment) as past, pytest.raises(CommandRefusedError, match=r"is waiting.*jobs cancel slow"):
        plan_of(past, "slow")

    async def ask(worker: Any) -> None:
        await place.loaded.wait()
        with Client(deployment=place.shop.deployment) as client, pytest.raises(CommandRefusedError, match="is running"):
            client.revert("slow", "r")
        # What a client could not know is decided by the owner.
        command = e.Event(e.RevertCommand("c1", "r", "ann"), resource=f"item:{HERE}")
        record = e.EventRecord(e.UNNUMBERED, 0, 0, 0, "test", "slow", 0, (command,))
        place.shop.append(place.shop.topics.commands, place.shop.deployment.codec.encode(record), partition=0)
        while "RevertDecided" not in place.shop.names("slow"):
            await asyncio.sleep(0.01)
        place.go_on.set()

    place.shop.run(during=ask)
    (decided,) = [body for body in place.shop.bodies("slow") if isinstance(body, e.RevertDecided)]
    assert decided.refusal is not None
    assert "is running" in decided.refusal
    assert place.data(HERE) == {"a": 10}


def test_a_running_job_that_read_what_is_reverted_is_retried(place: Place) -> None:
    place.change("before", {HERE: {"a": 1}})
    place.change("bad", {HERE: {"a": 100}})
    place.shop.submit("slow", {"item": HERE}, "slow", key=f"item:{HERE}")

    async def ask(worker: Any) -> None:
        await place.loaded.wait()
        with Client(deployment=place.shop.deployment) as client:
            done = await asyncio.to_thread(client.revert, "bad", "r", "ann", 20.0)
        assert rows(done.reverted) == [(f"item:{HERE}", "a", "set", 100, 1)]
        place.go_on.set()

    place.shop.run(during=ask)
    assert place.data(HERE) == {"a": 11}, "ten on what was brought back"
    (conflict,) = [body for body in place.shop.bodies("slow") if isinstance(body, e.WriteConflict)]
    assert conflict.writer == "a revert of bad"
    assert place.shop.job("slow").attempt == 2


def test_what_is_asked_without_a_worker_is_done_by_the_next_one(place: Place) -> None:
    place.change("bad", {HERE: {"a": 1}, THERE: {"a": 1}})
    with Client(deployment=place.shop.deployment) as client:
        queued = client.revert("bad", "r")
        assert (queued.state, queued.reverted) == ("queued", [])
        assert set(queued.waiting) == {f"item:{HERE}", f"item:{THERE}"}
        with pytest.raises(ValueError, match="reason"):
            client.revert("bad", " ")
    place.shop.run()
    assert (place.data(HERE), place.data(THERE)) == ({}, {})


def test_calls_to_the_outside_are_told_and_left_alone(place: Place) -> None:
    place.shop.submit("pay", {}, "p")
    place.shop.run()
    told = {row["operation"]: row for row in place.revert("p").effects}
    assert (told["send"]["status"], told["send"]["compensated"]) == ("succeeded", False)
    assert (told["ask"]["status"], told["ask"]["resolve"]) == (
        "in_doubt",
        f"rewindq effects resolve {told['ask']['key']}",
    )


def test_what_no_command_may_say_is_refused(place: Place) -> None:
    for key in (None, f"item:{THERE}"):
        event = e.Event(e.RevertCommand(f"c{key}", "r", "ann"), resource=key)
        record = e.EventRecord(e.UNNUMBERED, 0, 0, 0, "test", "x", 0, (event,))
        place.shop.append(place.shop.topics.commands, place.shop.deployment.codec.encode(record), partition=0)
    place.shop.run()
    refused = [body.reason for body in place.shop.bodies() if isinstance(body, e.CommandRefused)]
    assert refused == ["it names no aggregate", f"item:{THERE} is at home on partition 1"]


def test_reverts_amid_the_writes_of_others_undo_nobody_elses(place: Place) -> None:
    """Many jobs write the same fields while earlier ones are reverted: `verify` recomputes every value afterwards."""
    items, count = (HERE, THERE, ELSEWHERE), 60
    for number in range(count):
        writes = {items[number % 3]: {"a": number, f"own{number}": 1}, items[(number + 1) % 3]: {"b": number}}
        home = items[number % 3]
        place.shop.submit("change", {"writes": writes, "item": home}, f"j{number}", key=f"item:{home}")

    async def ask(worker: Any) -> None:
        with Client(deployment=place.shop.deployment) as client:
            for number in range(0, count, 2):
                await asyncio.to_thread(client.wait, f"j{number}", 20.0)
                await asyncio.to_thread(client.revert, f"j{number}", "r", "ann", 0)

    place.shop.run(during=ask, concurrency=10)
    place.shop.run()
    decided = [body for body in place.shop.bodies() if isinstance(body, e.RevertDecided)]
    assert {body.versions for body in decided} >= {1}, "each has a field that nobody else writes"
    own = {name for item in items for name in place.data(item) if name.startswith("own")}
    assert own == {f"own{number}" for number in range(1, count, 2)}


def test_what_is_too_large_for_one_record_is_split_and_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revert, "VERSION_BYTES_MAX", 10)
    monkeypatch.setattr(revert, "REFUSED_MAX", 1)
    names = [f"f{number}" for number in range(8)]
    place.change("before", {HERE: dict.fromkeys(names, 1)})
    place.change("bad", {HERE: dict.fromkeys(names, 2)})
    place.change("later", {HERE: {"f0": 3, "f1": 3, "f2": 3}})
    planned, done = place.plan("bad"), place.revert("bad")
    assert (len(planned.refused), len(done.refused), done.refused_untold) == (3, 1, 2)
    assert {row["version"] for row in done.reverted} == {4, 5}
    assert [(row["field"], row["version"]) for row in done.reverted] == [
        (row["field"], row["version"]) for row in planned.reverted
    ]
    assert place.data(HERE) == {**dict.fromkeys(names, 1), "f0": 3, "f1": 3, "f2": 3}
