"""Reading the past: with a store, without one, with one that lags behind, and beside a worker that runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.apps import app
from tests.support.shop import Shop

from rewindq.engine.core.position import BadPosition
from rewindq.engine.core.times import BadTime, format_time
from rewindq.engine.runtime import past as past_module
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.past import JobFilter, NotFound, Past
from rewindq.engine.runtime.show import job_shown
from rewindq.engine.runtime.states import When, aggregate_shown, history_shown, resolve
from rewindq.engine.runtime.trace import job_detail, trace_shown


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Three deposits on one account, one refused one, two echoes; four partitions."""
    shop = Shop(tmp_path, app, partitions=4)
    with Client(deployment=shop.deployment, app=app) as client:
        for number, amount in enumerate(["1.10", "2.20", "3.30", "-1"], 1):
            client.submit("deposit", {"account": "a", "amount": amount, "pin": "1234"}, job_id=f"d{number}")
        client.submit("echo", {"text": "hello"}, job_id="e1")
        client.submit("echo", {"text": "again"}, job_id="e2")
    shop.run()
    yield shop
    shop.deployment.close()


def without_store(shop: Shop) -> None:
    shutil.rmtree(shop.deployment.settings.state_dir)


@pytest.mark.parametrize("store", [True, False])
def test_a_job_is_found_wherever_it_is(shop: Shop, store: bool) -> None:
    if not store:
        without_store(shop)
    with Past(shop.deployment) as past:
        job = job_shown(past.find("d1"))
        assert (job["status"], job["attempt"], job["resource"]) == ("succeeded", 1, "account:a")
        assert job["failure"] is None
        assert job_shown(past.find("d4"))["failure"] == {
            "class": "validation",
            "reason": "-1 is no deposit (validation is never retried)",
            "step": None,
        }
        with pytest.raises(NotFound, match="no job 'd5'"):
            past.find("d5")


def test_what_lies_beyond_the_store_is_folded_on_top(shop: Shop, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "state", tmp_path / "lagging")
    shop.submit("deposit", {"account": "a", "amount": "10"}, "d9")
    shop.run()
    lagging = shop.deployment.settings.model_copy(update={"state_dir": tmp_path / "lagging"})
    shop.deployment.settings = lagging
    with Past(shop.deployment) as past:
        assert past.find("d9").state.status == "succeeded"
        assert past.find("d1").state.status == "succeeded"
        assert past.aggregate("account:a").data["total"] == Decimal("16.60")
        assert len(list(past.versions("account:a"))) == 4


def test_a_past_that_stays_open_follows_the_log(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        assert past.aggregate("account:a").version == 3
        shop.submit("deposit", {"account": "a", "amount": "10"}, "d9")
        shop.run()
        past.refresh()
        assert past.aggregate("account:a").version == 4


def test_a_past_that_stays_open_drops_what_the_store_holds_by_now(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_module, "_MEMORY_RECORDS_MAX", 3)
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        for number in range(5):
            shop.submit("deposit", {"account": "a", "amount": "1"}, f"more{number}")
            shop.run()
            past.refresh()
            assert past.aggregate("account:a").version == 4 + number
            assert home._in_memory <= 9, "one deposit's records, and what the limit lets stand"


def test_a_past_without_a_store_moves_to_disk_when_it_grows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    without_store(shop)
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        assert home._scratch is None
        monkeypatch.setattr(past_module, "_MEMORY_RECORDS_MAX", 3)
        shop.submit("deposit", {"account": "a", "amount": "1"}, "more")
        shop.run()
        shutil.rmtree(shop.deployment.settings.state_dir)
        past.refresh()
        assert home._scratch is not None
        assert past.aggregate("account:a").version == 4


def test_another_logs_store_is_not_used(shop: Shop, tmp_path: Path) -> None:
    other = Shop(tmp_path / "other", app, partitions=4, state_dir=tmp_path / "state")
    with capture_logs() as logs, Past(other.deployment) as past, pytest.raises(NotFound):
        past.find("d1")
    assert {entry["event"] for entry in logs} == {"store not used; folding the log from its beginning"}
    other.deployment.close()


def test_a_long_log_without_a_store_is_folded_on_disk(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    without_store(shop)
    monkeypatch.setattr(past_module, "_MEMORY_RECORDS_MAX", 1)
    with Past(shop.deployment) as past:
        assert past.find("d1").state.status == "succeeded"
        folders = [one._scratch.name for one in past._opened.values() if one._scratch is not None]
        assert folders
    assert not any(Path(folder).exists() for folder in folders)


def test_jobs_are_listed_newest_first_and_counted(shop: Shop) -> None:
    shop.submit("echo", {}, "waiting")
    with Past(shop.deployment) as past:
        found, total = past.jobs(JobFilter(), 2)
        assert [one.job_id for one in found] == ["waiting", "e2"]
        assert total == 7
        found, total = past.jobs(JobFilter(status="investigation"))
        assert [one.job_id for one in found] == ["d4"]
        found, _ = past.jobs(JobFilter(type="echo", status="succeeded"))
        assert [one.job_id for one in found] == ["e2", "e1"]
        found, _ = past.jobs(JobFilter(resource="account:a", since=past.find("d3").head.submitted_at))
        assert [one.job_id for one in found] == ["d4", "d3"]


def test_a_submission_that_is_read_again_is_listed_once(shop: Shop) -> None:
    places = {(shop.topics.jobs, partition): 0 for partition in range(4)}
    shop.deployment.log.set_offsets(shop.deployment.group, places)
    with Past(shop.deployment) as past:
        found, total = past.jobs(JobFilter())
        assert total == 6
        assert {one.state.status for one in found} == {"succeeded", "investigation"}


# --- traces ---


def test_a_trace_tells_all_in_log_order(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        shown = trace_shown(past, "d1")
    assert [event["type"] for event in shown["events"]] == [
        "JobSubmitted",
        "JobAccepted",
        "AttemptStarted",
        "StepCompleted",
        "DecisionRecorded",
        "EffectStarted",
        "EffectSucceeded",
        "StateChanged",
        "JobSucceeded",
    ]
    submitted, accepted, *_ = shown["events"]
    assert submitted["position"] is None
    assert submitted["topic"] == shop.topics.jobs
    numbers = [event["seq"] for event in shown["events"][1:]]
    assert numbers == sorted(numbers)
    assert accepted["position"] == f"p{accepted['partition']}@{accepted['seq']}"
    changed = shown["events"][7]
    assert (changed["step"], changed["resource"], changed["resource_version"]) == ("save account:a", "account:a", 1)
    assert changed["body"]["changes"] == {"total": "1.10", "last": "d1"}
    assert shown["events"][8]["body"]["result"] == {"total": "1.10"}


def test_secrets_are_masked_in_every_event(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        text = str(trace_shown(past, "d1")) + str(job_detail(past, "d1"))
    assert "1234" not in text
    assert "**********" in text


def test_a_trace_of_one_attempt(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        assert {event["attempt"] for event in trace_shown(past, "d1", 1)["events"]} == {1}
        with pytest.raises(NotFound, match="has no attempt 2; it has 1"):
            trace_shown(past, "d1", 2)


def test_a_trace_of_a_job_that_nobody_has_taken_in(shop: Shop) -> None:
    shop.submit("echo", {"text": "x"}, "waiting")
    with Past(shop.deployment) as past:
        (event,) = trace_shown(past, "waiting")["events"]
        assert (event["type"], event["body"]["payload"]) == ("JobSubmitted", {"text": "x"})
        assert job_detail(past, "waiting")["attempts"] == []


def test_a_jobs_attempts_payload_and_result(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        good, bad = job_detail(past, "d1"), job_detail(past, "d4")
    assert good["payload"] == {"account": "a", "amount": "1.10", "pin": "**********"}
    assert good["result"] == {"total": "1.10"}
    (attempt,) = bad["attempts"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "failed")
    assert attempt["failure"] == {
        "class": "validation",
        "reason": "-1 is no deposit",
        "step": None,
        "rule": "app rule for tests.support.apps.Refused",
    }


def test_bytes_that_could_not_become_a_job_are_shown(shop: Shop) -> None:
    shop.append(shop.topics.jobs, b"\x00\xff nonsense", partition=2)
    shop.run()
    with Past(shop.deployment) as past:
        (found,), _ = past.jobs(JobFilter(status="investigation", type=""))
        (event,) = trace_shown(past, found.job_id)["events"]
    assert event["body"]["original"] == {"base64": "AP8gbm9uc2Vuc2U="}


# --- state ---


def test_an_aggregate_now_and_then(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        now = aggregate_shown(home.store, home.partition, "account:a", None)
        assert (now["version"], now["data"], now["writer"]) == (3, {"total": "6.60", "last": "d3"}, "d3")
        then = aggregate_shown(home.store, home.partition, "account:a", resolve(past, "account:a", When(version=2)))
        assert then["data"] == {"total": "3.30", "last": "d2"}
        assert resolve(past, "account:a", When(at=then["position"])) == int(then["position"].split("@")[1])


def test_a_time_is_the_moment_before_the_first_later_event(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        changes = [event for event in all_events(past) if event["type"] == "StateChanged"]
        for number, change in enumerate(changes, 1):
            seq = resolve(past, "account:a", When(time=change["timestamp"]))
            assert aggregate_shown(home.store, home.partition, "account:a", seq)["version"] == number
        before = resolve(past, "account:a", When(time="1999-01-01T00:00:00Z"))
        assert aggregate_shown(home.store, home.partition, "account:a", before)["version"] == 0
        after = resolve(past, "account:a", When(time=format_time(shop.deployment.clock.now_us())))
        assert after == home.next_seq - 1


def all_events(past: Past) -> list[dict[str, object]]:
    return [event for job in ("d1", "d2", "d3") for event in trace_shown(past, job)["events"]]


def test_history_names_parent_writer_step_and_token(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        versions = history_shown(home.store, home.partition, "account:a", None)
    assert [(one["version"], one["parent"], one["job_id"], one["fencing_token"]) for one in versions] == [
        (1, 0, "d1", 1),
        (2, 1, "d2", 2),
        (3, 2, "d3", 3),
    ]
    assert versions[0]["changes"] == {"total": "1.10", "last": "d1"}


@pytest.mark.parametrize(
    ("when", "error", "reason"),
    [
        (When(version=4), NotFound, "no version 4: it has 1 to 3"),
        (When(version=0), NotFound, "no version 0"),
        (When(at="p1@0"), NotFound, "is at home on p"),
        (When(at="nonsense"), BadPosition, "no position"),
        (When(time="yesterday"), BadTime, "no time"),
    ],
)
def test_a_moment_that_is_none_is_refused(shop: Shop, when: When, error: type[Exception], reason: str) -> None:
    with Past(shop.deployment) as past, pytest.raises(error, match=reason):
        assert past.home("account:a").partition != 1
        resolve(past, "account:a", when)


def test_a_position_behind_the_end_is_not_found(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        home = past.home("account:a")
        with pytest.raises(NotFound, match="lies behind the end"):
            resolve(past, "account:a", When(at=f"p{home.partition}@{home.next_seq}"))


def test_an_aggregate_that_never_was_is_not_found(shop: Shop) -> None:
    with Past(shop.deployment) as past:
        home = past.home("account:zz")
        with pytest.raises(NotFound, match="there is no account:zz"):
            aggregate_shown(home.store, home.partition, "account:zz", None)
        with pytest.raises(NotFound, match="there is no account:zz"):
            history_shown(home.store, home.partition, "account:zz", None)


def test_a_parked_command_does_not_take_another_jobs_submission_for_its_own(shop: Shop) -> None:
    shop.append(shop.topics.commands, b"nonsense", partition=1)
    shop.run()
    with Past(shop.deployment) as past:
        (parked,) = [one for one in past.jobs(JobFilter(type=""))[0] if one.job_id.startswith(shop.topics.commands)]
        assert parked.head.source_offset == 0
        types = [event["type"] for event in trace_shown(past, parked.job_id)["events"]]
    assert types == ["MovedToInvestigation"]
