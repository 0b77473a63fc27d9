"""A broker that falls silent leaves outcomes unknown, never guessed; its end afterwards tells what happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.broker import require_local
from tests.support.kafka import Space, event, poll_until, until

from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.log.kafka.transactions import Transactions
from rewindq.engine.ports.log import AppendRefused, LogUnavailable, OutcomeUnknown, Turn
from rewindq.tools.kafka_local import LocalKafka, start, stop

pytestmark = [pytest.mark.kafka, pytest.mark.process, pytest.mark.slow]

_SHORT = "&transaction_timeout_ms=2000&request_timeout_ms=2000"


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker of this module alone: it is frozen, which the shared one must not be."""
    folder: Path = tmp_path_factory.mktemp("kafka")
    require_local()
    yield start(dir=folder)
    stop(folder)


class Freezer:
    def __init__(self, kafka: LocalKafka) -> None:
        self._pid = kafka.pids[0]

    def freeze(self) -> None:
        """Returns when every thread stands still: until the first one is told, the others go on answering."""
        os.kill(self._pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self._pid}/task")
        until(lambda: all((one / "stat").read_text().rpartition(")")[2].split()[0] == "T" for one in threads.iterdir()))

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.fixture
def freezer(broker: LocalKafka) -> Iterator[Freezer]:
    made = Freezer(broker)
    yield made
    made.thaw()


@pytest.fixture
def space(broker: LocalKafka, freezer: Freezer) -> Iterator[Space]:
    made = Space(broker.bootstrap, options=_SHORT)
    yield made
    freezer.thaw()
    made.close()


def test_an_append_without_an_answer_is_unknown(space: Space, freezer: Freezer) -> None:
    producer = space.log.producer()
    producer.append([event(space.events, "before")])
    freezer.freeze()
    with pytest.raises(OutcomeUnknown, match="read the log's end"):
        producer.append([event(space.events, "unknown")])
    freezer.thaw()
    producer.append([event(space.events, "after")])
    values = [record.value for record in space.read(space.events)]
    assert values in ([b"before", b"unknown", b"after"], [b"before", b"after"])
    producer.close()


def test_a_silent_cluster_is_unavailable_by_name(space: Space, freezer: Freezer, broker: LocalKafka) -> None:
    freezer.freeze()
    with pytest.raises(LogUnavailable, match=broker.bootstrap):
        space.log.groups()
    with pytest.raises(LogUnavailable, match="check that its brokers run"):
        open_kafka(space.url)


def test_a_commit_without_an_answer_is_unknown_and_the_end_tells(
    space: Space, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    member.commit(Turn([event(space.events, "before")], {(space.jobs, 0): 1}, frozenset({0})))

    commit = Transactions._commit

    def silent_commit(self: Transactions, producer: Producer, *rest: object) -> None:
        # A record that was not delivered yet would time out: then it is surely not appended, which is another case.
        assert producer.flush(10) == 0
        freezer.freeze()
        commit(self, producer, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "_commit", silent_commit)
        with pytest.raises(OutcomeUnknown, match="read the log's end"):
            member.commit(Turn([event(space.events, "unknown")], {(space.jobs, 0): 2}, frozenset({0})))
    freezer.thaw()
    member.close()
    # Who owns the partitions next gets them once the broker has decided: both or neither, for good.
    heir, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, heir)
    first = [record.value for record in space.read(space.events)]
    assert (first, space.committed()[0]) in (([b"before"], 1), ([b"before", b"unknown"], 2))
    assert [record.value for record in space.read(space.events)] == first
    heir.close()


def test_a_turn_that_never_reached_the_commit_is_refused(space: Space, freezer: Freezer) -> None:
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    member.commit(Turn([event(space.events, "before")], {(space.jobs, 0): 1}, frozenset({0})))
    freezer.freeze()
    with pytest.raises(AppendRefused, match="nothing was appended"):
        member.commit(Turn([event(space.events, "refused")], {(space.jobs, 0): 2}, frozenset({0})))
    freezer.thaw()
    assert [record.value for record in space.read(space.events)] == [b"before"]
    assert space.committed()[0] == 1
    member.close()
