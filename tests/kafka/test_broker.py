"""A machine without any Kafka: tests that need one say so at once, and fail where one is required."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import broker


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is named, and there is neither Java nor Docker on PATH."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(broker.DIR_VARIABLE, str(shared))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("KAFKA_BOOTSTRAP", "JAVA_HOME", "REWINDQ_REQUIRE_KAFKA"):
        monkeypatch.delenv(name, raising=False)


def test_the_reason_is_told_and_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    start = broker._start

    def counted(folder: Path) -> str:
        looked.append(folder)
        return start(folder)

    monkeypatch.setattr(broker, "_start", counted)
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match=r"no Kafka: no java: set JAVA_HOME.*KAFKA_BOOTSTRAP.*Docker"):
            broker.bootstrap()
    assert len(looked) == 1


def test_it_fails_where_a_broker_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDQ_REQUIRE_KAFKA", "1")
    with pytest.raises(pytest.fail.Exception, match="REWINDQ_REQUIRE_KAFKA=1 and there is no Kafka: no java"):
        broker.bootstrap()


def test_a_test_with_a_broker_of_its_own_says_what_is_missing() -> None:
    with pytest.raises(pytest.skip.Exception, match="has to run on this machine's Java: no java"):
        broker.require_local()


def test_a_cluster_that_is_named_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "somewhere:9092")
    assert broker.bootstrap() == "somewhere:9092"
