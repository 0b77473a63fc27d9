"""Verification finds planted damage: each test spoils one thing in the log of a real run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.apps import app
from tests.support.shop import Shop

from rewindq.engine.core import events as e
from rewindq.engine.log.memory import MemoryLog
from rewindq.engine.log.memory.state import Partition
from rewindq.engine.ports.store import Family, Put
from rewindq.engine.runtime import verify as verify_module
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.rewinding import plan_rewind, rewind
from rewindq.engine.runtime.verify import verify
from rewindq.engine.store.opener import open_store

Change = Callable[[e.EventRecord], list[e.EventRecord]]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Three deposits on one account, one refused, an echo; one partition of a log in memory."""
    shop = Shop(tmp_path, app, log=MemoryLog())
    with Client(deployment=shop.deployment, app=app) as client:
        for number, amount in enumerate(["1.10", "2.20", "3.30", "-1"], 1):
            client.submit("deposit", {"account": "a", "amount": amount}, job_id=f"d{number}")
        client.submit("echo", {"text": "hello"}, job_id="e1")
    shop.run()
    yield shop
    shop.deployment.close()


def partition_of(shop: Shop, topic: str) -> Partition:
    log = shop.deployment.log
    assert isinstance(log, MemoryLog)
    return log.state.topics[topic][0]


def edit(shop: Shop, topic: str, change: Change) -> None:
    """Replaces each record of a topic by what `change` makes of it; nothing is renumbered."""
    partition = partition_of(shop, topic)
    codec = shop.deployment.codec
    before, partition.records, partition.offsets = partition.records, [], []
    for stored in before:
        for record in change(codec.decode(stored.value)):
            offset = max(stored.offset, partition.offsets[-1] + 1 if partition.offsets else 0)
            partition.records.append(stored._replace(offset=offset, value=codec.encode(record)))
            partition.offsets.append(offset)
    partition.end = max(partition.end, partition.offsets[-1] + 1)


def edit_body(shop: Shop, topic: str, kind: type[e.Body], job_id: str, change: Callable[[e.Event], e.Event]) -> None:
    """Changes the events of one kind of one job."""

    def each(record: e.EventRecord) -> list[e.EventRecord]:
        if record.job_id != job_id:
            return [record]
        events = [change(event) if isinstance(event.body, kind) else event for event in record.events]
        return [replace(record, events=tuple(events))]

    edit(shop, topic, each)


def append(shop: Shop, topic: str, job_id: str, body: e.Body, **fields: Any) -> None:
    """Appends one more event behind everything, numbered and written as the last owner would."""
    last = shop.fold()[0].positions
    records = shop.records()
    writer = next(record for record in reversed(records) if record.seq >= 0)
    record = e.EventRecord(
        last.seq,
        last.lamport + 1,
        writer.timestamp,
        writer.epoch,
        writer.worker_id,
        job_id,
        1,
        (e.Event(body, **fields),),
    )
    shop.append(topic, shop.deployment.codec.encode(record), partition=0)


def kinds(shop: Shop) -> set[str]:
    report = verify(shop.deployment)
    assert report["ok"] == (not report["violations"])
    return {violation["kind"] for violation in report["violations"]}


def test_a_clean_log_is_clean(shop: Shop) -> None:
    report = verify(shop.deployment)
    assert report["ok"]
    assert report["violations"] == []
    assert report["jobs"] == 5
    assert report["by_status"] == {"investigation": 1, "succeeded": 4}
    assert report["events"] == sum(len(record.events) for record in shop.records() if record.seq >= 0)
    assert report["digest"] == report["rebuilt_digest"] is not None


def test_a_store_that_lags_behind_is_compared_where_it_stands(shop: Shop, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "state", tmp_path / "lagging")
    shop.submit("echo", {}, "e2")
    shop.run()
    shop.deployment.settings = shop.deployment.settings.model_copy(update={"state_dir": tmp_path / "lagging"})
    report = verify(shop.deployment)
    assert report["ok"], report["violations"]
    assert report["jobs"] == 6
    assert report["digest"] == report["rebuilt_digest"] is not None


def test_without_stores_there_is_nothing_to_compare(shop: Shop, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "state")
    report = verify(shop.deployment)
    assert report["ok"]
    assert report["digest"] is None
    assert "nothing to compare" in report["notes"][0]


def test_an_event_that_is_missing(shop: Shop) -> None:
    edit(shop, shop.topics.domain, lambda record: [] if record.job_id == "d2" else [record])
    assert "seq_gap" in kinds(shop)


def test_a_second_outcome(shop: Shop) -> None:
    append(shop, shop.topics.lifecycle, "d1", e.JobSucceeded(None, None, 1))
    assert {"second_outcome", "fold"} <= kinds(shop)


def test_what_follows_the_first_damage_is_still_checked(shop: Shop) -> None:
    append(shop, shop.topics.lifecycle, "d1", e.JobSucceeded(None, None, 1))
    append_raw(shop, "d2", e.JobSucceeded(None, None, 1), behind=1)
    report = verify(shop.deployment)
    assert [v["job_id"] for v in report["violations"] if v["kind"] == "second_outcome"] == ["d1", "d2"]


def append_raw(shop: Shop, job_id: str, body: e.Body, behind: int) -> None:
    """Like `append` where the log can no longer be folded."""
    last = max(
        (shop.deployment.codec.decode(stored.value) for stored in partition_of(shop, shop.topics.lifecycle).records),
        key=lambda record: record.seq,
    )
    record = replace(
        last, seq=last.next_seq - 1 + behind, lamport=last.lamport + 10, job_id=job_id, events=(e.Event(body),)
    )
    shop.append(shop.topics.lifecycle, shop.deployment.codec.encode(record), partition=0)


def test_a_second_success_under_one_key(shop: Shop) -> None:
    def doubled(record: e.EventRecord) -> list[e.EventRecord]:
        events = list(record.events)
        for index, event in enumerate(events):
            if isinstance(event.body, e.StateChanged) and record.job_id == "d1":
                answered = next(one for one in events if isinstance(one.body, e.EffectSucceeded))
                events[index] = answered
        return [replace(record, events=tuple(events))]

    edit(shop, shop.topics.domain, doubled)
    assert "second_success" in kinds(shop)


def test_an_outcome_without_a_start(shop: Shop) -> None:
    change = lambda event: replace(event, body=replace(event.body, key="another/key/altogether"))  # noqa: E731
    edit_body(shop, shop.topics.domain, e.EffectStarted, "d1", change)
    assert {"effect_order", "effect_without_outcome"} <= kinds(shop)


def test_a_call_without_an_outcome(shop: Shop) -> None:
    change = lambda event: replace(event, body=e.NoteRecorded(b"{}"))  # noqa: E731
    edit_body(shop, shop.topics.domain, e.EffectSucceeded, "d1", change)
    assert "effect_without_outcome" in kinds(shop)


def test_a_token_that_does_not_grow(shop: Shop) -> None:
    edit_body(shop, shop.topics.lifecycle, e.AttemptStarted, "d2", lambda event: replace(event, fencing_token=1))
    assert "token" in kinds(shop)


def test_a_grant_without_a_token(shop: Shop) -> None:
    edit_body(shop, shop.topics.lifecycle, e.AttemptStarted, "d2", lambda event: replace(event, fencing_token=None))
    assert "token" in kinds(shop)


def test_a_write_under_a_stale_token(shop: Shop) -> None:
    edit_body(shop, shop.topics.domain, e.StateChanged, "d3", lambda event: replace(event, fencing_token=2))
    assert "stale_token_accepted" in kinds(shop)


def test_a_version_with_a_false_parent(shop: Shop) -> None:
    change = lambda event: replace(event, body=replace(event.body, parent=0))  # noqa: E731
    edit_body(shop, shop.topics.domain, e.StateChanged, "d3", change)
    assert "version" in kinds(shop)


def test_a_version_that_is_left_out(shop: Shop) -> None:
    edit_body(shop, shop.topics.domain, e.StateChanged, "d3", lambda event: replace(event, resource_version=9))
    assert "version" in kinds(shop)


def test_a_lamport_clock_that_goes_back(shop: Shop) -> None:
    edit(
        shop,
        shop.topics.domain,
        lambda record: [replace(record, lamport=1) if record.job_id == "d3" else record],
    )
    assert "lamport" in kinds(shop)


def test_a_cause_that_comes_later(shop: Shop) -> None:
    edit(
        shop,
        shop.topics.domain,
        lambda record: [replace(record, causation_id=f"p0@{record.seq}") if record.seq >= 0 else record],
    )
    assert kinds(shop) == {"causation"}


def test_an_attempt_that_is_left_out(shop: Shop) -> None:
    edit(
        shop,
        shop.topics.lifecycle,
        lambda record: [replace(record, attempt=3) if record.job_id == "e1" and record.attempt else record],
    )
    assert "attempt" in kinds(shop)


def test_a_step_of_a_job_that_does_not_run(shop: Shop) -> None:
    append(shop, shop.topics.domain, "d1", e.NoteRecorded(b"{}"), step="note late")
    assert "step_outside_attempt" in kinds(shop)


def test_a_step_of_another_attempt(shop: Shop) -> None:
    edit(
        shop,
        shop.topics.domain,
        lambda record: [replace(record, attempt=2) if record.job_id == "d1" else record],
    )
    assert "step_outside_attempt" in kinds(shop)


def test_an_event_on_the_wrong_topic(shop: Shop) -> None:
    append(shop, shop.topics.domain, "e1", e.CommandRefused("cancel", "c1", "over"))
    assert kinds(shop) == {"wrong_topic"}


def test_a_decision_that_is_cut_off(shop: Shop) -> None:
    def cut(record: e.EventRecord) -> list[e.EventRecord]:
        if record.job_id != "d4" or not isinstance(record.events[-1].body, e.MovedToInvestigation):
            return [record]
        events = (*record.events[:-1], e.Event(e.CommandRefused("cancel", "c1", "over")))
        return [replace(record, events=events)]

    edit(shop, shop.topics.lifecycle, cut)
    assert "unfinished_decision" in kinds(shop)


def test_a_transition_that_is_not_in_the_table(shop: Shop) -> None:
    append(shop, shop.topics.lifecycle, "d4", e.RetryScheduled("transient", 1, 1))
    assert "transition" in kinds(shop)


def test_a_submission_that_was_passed_over(shop: Shop) -> None:
    shop.submit("echo", {}, "lost")
    end = shop.deployment.log.bounds(shop.topics.jobs, 0)[1]
    shop.deployment.log.set_offsets(shop.deployment.group, {(shop.topics.jobs, 0): end})
    (violation,) = verify(shop.deployment)["violations"]
    assert violation["kind"] == "lost_input"
    assert "job lost" in violation["detail"]


def test_a_command_that_was_passed_over(shop: Shop) -> None:
    shop.input(shop.topics.commands, "d4", e.RetryCommand("c9", "why not", "me"), "d4")
    end = shop.deployment.log.bounds(shop.topics.commands, 0)[1]
    shop.deployment.log.set_offsets(shop.deployment.group, {(shop.topics.commands, 0): end})
    (violation,) = verify(shop.deployment)["violations"]
    assert violation["kind"] == "lost_input"
    assert "a command about job d4" in violation["detail"]


def test_what_an_operator_skipped_is_a_note(shop: Shop) -> None:
    shop.submit("echo", {}, "skipped")
    rewind(shop.deployment, plan_rewind(shop.deployment, "worker", "latest"), "not wanted", skip=True)
    shop.run()
    report = verify(shop.deployment)
    assert report["ok"], report["violations"]
    assert "was skipped by an operator: job skipped" in report["notes"][0]


def test_a_submission_that_still_waits_is_not_lost(shop: Shop) -> None:
    shop.submit("echo", {}, "waiting")
    assert kinds(shop) == set()


def test_bytes_that_could_not_become_a_job_are_accounted_for(shop: Shop) -> None:
    shop.append(shop.topics.jobs, b"nonsense", partition=0)
    shop.append(shop.topics.commands, b"nonsense", partition=0)
    shop.run()
    report = verify(shop.deployment)
    assert report["ok"], report["violations"]
    assert report["by_status"]["investigation"] == 3


def test_a_late_append_of_an_old_owner_is_a_note(shop: Shop) -> None:
    records = shop.records()
    old = next(record for record in reversed(records) if record.seq >= 0)
    shop.submit("echo", {}, "e2")
    shop.run()
    late = replace(old, seq=old.next_seq, job_id="d1", events=(e.Event(e.JobSucceeded(None, None, 1)),))
    shop.append(shop.topics.lifecycle, shop.deployment.codec.encode(late), partition=0)
    report = verify(shop.deployment)
    assert report["ok"], report["violations"]
    assert any("is stale: epoch 1 ended" in note for note in report["notes"])


def live_store(shop: Shop) -> Any:
    return open_store(str(shop.deployment.store_path(0)), branch="", partition=0)


def test_a_store_that_tells_something_else(shop: Shop) -> None:
    store = live_store(shop)
    store.write([Put(Family.PAYLOADS, b"ghost", b"x")])
    store.close()
    report = verify(shop.deployment)
    assert [violation["kind"] for violation in report["violations"]] == ["digest"]
    assert report["digest"] != report["rebuilt_digest"]


def test_a_store_that_is_ahead_of_its_log(shop: Shop) -> None:
    last = shop.fold()[0].positions.seq - 1
    for topic in (shop.topics.lifecycle, shop.topics.domain):
        edit(shop, topic, lambda record: [] if record.next_seq > last else [record])
    assert "store_ahead" in kinds(shop)


def test_a_store_that_cannot_be_read(shop: Shop) -> None:
    (shop.deployment.store_path(0) / "CURRENT").unlink()
    assert kinds(shop) == {"store"}


def test_a_record_that_cannot_be_decoded(shop: Shop) -> None:
    partition = partition_of(shop, shop.topics.domain)
    partition.records[3] = partition.records[3]._replace(value=b"\xc3\x01nonsense")
    assert "log_damaged" in kinds(shop)


def test_indexes_that_disagree_with_the_count(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "read_counts", lambda store: {"succeeded": 3, "waiting": 1})
    report = verify(shop.deployment)
    details = " ".join(violation["detail"] for violation in report["violations"])
    assert {violation["kind"] for violation in report["violations"]} == {"counts"}
    assert "3 jobs are succeeded, 4 were counted" in details
    assert "0 jobs are in the ready index, 1 were counted" in details


def test_one_id_on_two_partitions(tmp_path: Path) -> None:
    shop = Shop(tmp_path, app, log=MemoryLog(), partitions=2)
    with Client(deployment=shop.deployment) as client:
        client.submit("echo", {}, key="e", job_id="twice")
        client.submit("echo", {}, key="h", job_id="twice")
    shop.run()
    report = verify(shop.deployment)
    assert [violation["kind"] for violation in report["violations"]] == ["job_on_two_partitions"]
    shop.deployment.close()


def test_an_attempt_that_started_under_quarantine(shop: Shop) -> None:
    def add(record: e.EventRecord) -> list[e.EventRecord]:
        if record.job_id == "e1" and isinstance(record.events[0].body, e.JobAccepted):
            held = e.Event(e.QuarantineAdded("echo", "why", "ann", "c1"))
            return [replace(record, events=(*record.events, held))]
        return [record]

    edit(shop, shop.topics.lifecycle, add)
    assert ("quarantine", "e1") in {(one["kind"], one["job_id"]) for one in verify(shop.deployment)["violations"]}
