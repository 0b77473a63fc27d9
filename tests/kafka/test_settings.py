from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.log.kafka.settings import FatalNote, group_config, parse, transaction_config
from rewindq.engine.ports.log import LogUnavailable


def test_an_address_with_options() -> None:
    settings = parse("kafka://a:9092,b:9093?instance=w1&session_timeout_ms=7000&security.protocol=SSL")
    assert settings.bootstrap == "a:9092,b:9093"
    assert settings.request_timeout == 10.0
    config = group_config(settings, "g", "w")
    assert config["bootstrap.servers"] == "a:9092,b:9093"
    assert config["group.instance.id"] == "w1"
    assert config["session.timeout.ms"] == 7000
    assert config["security.protocol"] == "SSL"
    assert "group.instance.id" not in group_config(parse("kafka://a:9092"), "g", "w")


def test_what_must_hold_for_exactly_once() -> None:
    settings = parse("kafka://a:9092")
    reading = group_config(settings, "g", "w")
    assert (reading["isolation.level"], reading["auto.offset.reset"]) == ("read_committed", "error")
    assert reading["enable.auto.commit"] is False
    writing = transaction_config(settings, "w", "id")
    assert (writing["enable.idempotence"], writing["acks"]) == (True, "all")
    assert writing["message.timeout.ms"] <= writing["transaction.timeout.ms"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://", "expected kafka://"),
        ("kafka://host", "expected kafka://"),
        ("kafka://host:0", "expected kafka://"),
        ("kafka://user@host:9092", "expected kafka://"),
        ("kafka://a:1,b", "expected kafka://"),
        ("kafka://a:1/topic", "expected kafka://"),
        ("http://a:1", "expected kafka://"),
        ("kafka://a:1?sesion_timeout_ms=1", "unknown option 'sesion_timeout_ms'"),
        ("kafka://a:1?session_timeout_ms=soon", "session_timeout_ms='soon'"),
        ("kafka://a:1?session_timeout_ms=0", "session_timeout_ms='0'"),
        ("kafka://a:1?sasl.password=x", "sasl.password is a secret"),
        ("kafka://a:1?config=/no/such/file", "config=/no/such/file: cannot be read"),
    ],
)
def test_an_address_that_cannot_be_used(url: str, reason: str) -> None:
    with pytest.raises(LogUnavailable, match=reason.replace("?", r"\?")):
        parse(url)


def test_properties_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# cluster\n\nsasl.username = me\nsasl.password=a=b\nclient.rack=file\n")
    settings = parse(f"kafka://a:1?config={path}&client.rack=url")
    assert settings.properties == {"sasl.username": "me", "sasl.password": "a=b", "client.rack": "url"}
    path.write_text("sasl.username\n")
    with pytest.raises(LogUnavailable, match="line 1: expected name=value"):
        parse(f"kafka://a:1?config={path}")


def test_nobody_there() -> None:
    with pytest.raises(LogUnavailable, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
        open_kafka("kafka://127.0.0.1:1?request_timeout_ms=300")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("TXNERR [w#producer-1] [thrd:main]: Current transaction failed in state InTransaction", False),
        ("GETPID [w#producer-1] [thrd:main]: Failed to acquire PID: Coordinator load in progress: retrying", False),
        ("GETPID [w#producer-1] [thrd:main]: Failed to acquire PID: not authorized", True),
        ("FAIL [w#producer-1] [thrd:main]: Connection refused", True),
    ],
)
def test_the_clients_lines_of_what_is_raised_or_retried_are_not_logged(
    caplog: pytest.LogCaptureFixture, line: str, told: bool
) -> None:
    FatalNote().log(logging.ERROR, "%s", line)
    assert [record.getMessage() for record in caplog.records] == ([line] if told else [])


def test_what_ends_a_client_is_kept() -> None:
    note = FatalNote()
    note.log(logging.ERROR, "%s [%s] %s", "FAIL", "x", "Connection refused")
    assert note.reason is None
    note.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "x", "[thrd:main]: Fatal error: fenced by another")
    assert note.reason == "fenced by another"
