"""The client against the embedded log, with a worker of this process where jobs have to run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.apps import Balance, Deposit, app
from tests.support.shop import Shop

from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.values import ValueRefused
from rewindq.engine.ports.log import Append, OutcomeUnknown
from rewindq.engine.runtime.client import Client, CommandRefusedError, NotFound, NotSucceeded, Submission
from rewindq.engine.runtime.deployment import BodyTooLarge
from rewindq.engine.runtime.submitting import SubmissionRefused


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, app, partitions=4)
    yield shop
    shop.deployment.close()


@pytest.fixture
def client(shop: Shop) -> Iterator[Client]:
    with Client(deployment=shop.deployment) as client:
        yield client


def submitted(shop: Shop) -> list[e.EventRecord]:
    """What stands on the jobs topic, by partition."""
    found = []
    for partition in range(shop.deployment.partitions):
        low, end = shop.deployment.log.bounds(shop.topics.jobs, partition)
        reader = shop.deployment.log.reader({(shop.topics.jobs, partition): low})
        while reader.position(shop.topics.jobs, partition) < end:
            found += [shop.deployment.codec.decode(record.value) for record in reader.poll(100)]
        reader.close()
    return found


# --- submitting ---


def test_a_receipt_says_where_the_submission_stands(shop: Shop, client: Client) -> None:
    receipt = client.submit("echo", {"text": "a"}, key="k", job_id="j1", delay=60, priority=7)
    assert receipt == ("j1", partition_for(b"k", 4), 0)
    (record,) = submitted(shop)
    assert (record.job_id, record.seq, record.epoch) == ("j1", e.UNNUMBERED, 0)
    body = record.events[0].body
    assert isinstance(body, e.JobSubmitted)
    assert (body.type, body.payload, body.key, body.priority) == ("echo", b'{"text":"a"}', "k", 7)
    assert body.due is not None and 0 <= body.due - record.timestamp - 60_000_000 < 5_000_000


def test_without_a_key_the_id_is_it_and_without_an_id_one_is_made(shop: Shop, client: Client) -> None:
    receipt = client.submit("echo", {})
    assert receipt.partition == partition_for(receipt.job_id.encode(), 4)
    body = submitted(shop)[0].events[0].body
    assert isinstance(body, e.JobSubmitted)
    assert (body.key, body.due) == (None, None)


def test_many_keep_their_order_and_get_a_receipt_each(client: Client) -> None:
    receipts = client.submit_many(Submission("echo", {"text": str(n)}, key="k", job_id=f"j{n}") for n in range(2500))
    assert [receipt.job_id for receipt in receipts] == [f"j{n}" for n in range(2500)]
    assert [receipt.offset for receipt in receipts] == list(range(2500))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"job_id": ""}, "job id"),
        ({"job_id": "a\0b"}, "job id"),
        ({"job_id": "x" * 201}, "job id"),
        ({"type": " "}, "type"),
        ({"key": ""}, "key"),
        ({"key": "a\0"}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": True}, "delay"),
        ({"delay": 86_400 * 366 * 11}, "delay"),
        ({"priority": 1001}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"payload": [1]}, "payload"),
        ({"payload": {"a": {"b": float("inf")}}}, "/a/b"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_nothing_is_sent(
    shop: Shop, client: Client, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(SubmissionRefused, match=named):
        client.submit(**{"type": "echo", "payload": {}, **fields})
    assert submitted(shop) == []


def test_a_large_payload_goes_to_the_blob_store(shop: Shop, client: Client) -> None:
    client.submit("echo", {"text": "x" * 100_000}, job_id="big")
    body = submitted(shop)[0].events[0].body
    assert isinstance(body, e.JobSubmitted)
    assert body.payload is None
    assert body.payload_ref is not None
    assert shop.deployment.blobs is not None
    assert len(shop.deployment.blobs.get(body.payload_ref)) > 100_000


def test_without_a_blob_store_a_large_payload_is_refused(shop: Shop, client: Client) -> None:
    shop.deployment.blobs = None
    with pytest.raises(BodyTooLarge, match="16384"):
        client.submit("echo", {"text": "x" * 100_000})


def test_an_unknown_outcome_says_that_the_same_id_is_safe(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def append(self, records: list[Append]) -> list[int]:
            raise OutcomeUnknown("no answer in 10 s")

        def close(self) -> None: ...

    monkeypatch.setattr(shop.deployment.log, "producer", Silent)
    with pytest.raises(OutcomeUnknown, match=r"job j1 may or may not .* same ids is safe"):
        client.submit("echo", {}, job_id="j1")


# --- with the app ---


def test_with_the_app_the_resource_decides_the_partition(shop: Shop) -> None:
    with Client(deployment=shop.deployment, app=app) as client:
        receipt = client.submit("deposit", Deposit(account="a", amount=Decimal("1.10")))
    assert receipt.partition == partition_for(b"account:a", 4)
    body = submitted(shop)[0].events[0].body
    assert isinstance(body, e.JobSubmitted)
    assert body.key is None
    assert body.payload == b'{"account":"a","amount":"1.10","pin":"0000"}'


@pytest.mark.parametrize(
    ("submission", "reason"),
    [
        (Submission("nope", {}), "type 'nope' is unknown"),
        (Submission("deposit", {"account": "a"}), "amount: Field required"),
        (Submission("deposit", {"account": "a", "amount": 1}, key="elsewhere"), "resource 'account:a' is at home on"),
    ],
)
def test_with_the_app_a_wrong_submission_is_refused_at_once(shop: Shop, submission: Submission, reason: str) -> None:
    with Client(deployment=shop.deployment, app=app) as client, pytest.raises(SubmissionRefused, match=reason):
        client.submit_many([submission])


# --- asking ---


def test_a_job_is_visibly_waiting_before_any_worker_ran(client: Client) -> None:
    client.submit("echo", {}, job_id="now")
    client.submit("echo", {}, job_id="later", delay="1h")
    assert client.status("now")["status"] == "waiting"
    assert client.status("later")["status"] == "delayed"


def test_a_result_is_what_the_handler_returned(shop: Shop, client: Client) -> None:
    client.submit("deposit", {"account": "a", "amount": "2.50"}, job_id="j1")
    shop.run()
    assert client.status("j1")["status"] == "succeeded"
    assert client.result("j1") == {"total": "2.50"}
    with Client(deployment=shop.deployment, app=app) as typed:
        assert typed.result("j1") == Balance(total=Decimal("2.50"))


def test_a_result_is_waited_for(shop: Shop) -> None:
    with Client(deployment=shop.deployment) as client:
        client.submit("echo", {"text": "x"}, job_id="j1")
        results: list[Any] = []
        # A log and a past of its own: the worker uses the other one at the same time.
        with Client(log=shop.deployment.log.url, state_dir=shop.deployment.settings.state_dir) as waiting:
            thread = threading.Thread(target=lambda: results.append(waiting.result("j1", timeout=30)))
            thread.start()
            shop.run()
            thread.join()
        assert results == [{"text": "x"}]


def test_a_time_out_tells_where_the_job_stands(client: Client) -> None:
    client.submit("echo", {}, job_id="j1")
    with pytest.raises(TimeoutError, match=r"job j1 is waiting after 0\.05 s"):
        client.result("j1", timeout=0.05)


def test_a_job_that_failed_raises_with_its_reason(shop: Shop, client: Client) -> None:
    client.submit("deposit", {"account": "a", "amount": -1}, job_id="j1")
    shop.run()
    with pytest.raises(NotSucceeded, match=r"j1 is investigation: validation: -1 is no deposit") as caught:
        client.result("j1")
    assert caught.value.job["failure"]["class"] == "validation"


def test_an_unknown_job_is_not_found(client: Client) -> None:
    client.submit("echo", {}, job_id="j1")
    with pytest.raises(NotFound, match="no job 'j2'"):
        client.result("j2")


# --- commands ---


def test_a_command_is_carried_out_by_the_next_worker(shop: Shop, client: Client) -> None:
    client.submit("deposit", {"account": "a", "amount": 0}, job_id="bad")
    client.submit("echo", {}, job_id="later", delay=3600)
    shop.run(until=lambda report: report.failed == 1)
    assert client.cancel("later", "not wanted").state == "queued"
    assert client.retry("bad", "try again").state == "queued"
    shop.run()
    assert client.status("later")["status"] == "cancelled"
    assert client.status("bad")["attempt"] == 2


def test_a_command_that_makes_no_sense_is_not_sent(shop: Shop, client: Client) -> None:
    client.submit("echo", {}, job_id="j1")
    shop.run()
    with pytest.raises(CommandRefusedError, match="succeeded already"):
        client.cancel("j1", "too late")
    with pytest.raises(CommandRefusedError, match="only a job in investigation"):
        client.retry("j1", "why not")
    assert all(shop.deployment.log.bounds(shop.topics.commands, p)[1] == 0 for p in range(4))


def test_a_command_needs_a_reason(client: Client) -> None:
    client.submit("echo", {}, job_id="j1")
    with pytest.raises(ValueError, match="needs a reason"):
        client.cancel("j1", " ")


def test_a_value_that_cannot_be_recorded_names_its_path(client: Client) -> None:
    with pytest.raises(SubmissionRefused, match="/when") as caught:
        client.submit("echo", {"when": object()})
    assert isinstance(caught.value.__cause__, ValueRefused)
