"""A fetcher that one thread polls without a pause while another tells it what to fetch."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from tests.support.kafka import event, until
from tests.support.kafka_mock import MockCluster

from rewindq.engine.log.kafka import open_kafka
from rewindq.engine.log.kafka.bounds import Bounds
from rewindq.engine.log.kafka.fetch import Fetcher
from rewindq.engine.log.kafka.requests import Requests
from rewindq.engine.log.kafka.settings import parse, reader_config
from rewindq.engine.log.kafka.topics import Topics
from rewindq.engine.ports.log import Record

PARTITIONS = 4


@pytest.fixture
def topic(kafka_mock_cluster: MockCluster) -> str:
    """A topic with 50 records in each partition."""
    name = f"fetching.{uuid.uuid4().hex[:8]}"
    kafka_mock_cluster.create_topic(name, PARTITIONS)
    producer = open_kafka(f"kafka://{kafka_mock_cluster.bootstrap}").producer()
    producer.append([event(name, str(number), partition) for number in range(50) for partition in range(PARTITIONS)])
    producer.close()
    return name


@pytest.fixture
def fetcher(kafka_mock_cluster: MockCluster) -> Iterator[Fetcher]:
    settings = parse(f"kafka://{kafka_mock_cluster.bootstrap}")
    requests = Requests(settings)
    made = Fetcher(reader_config(settings, "fetching"), Bounds(requests, Topics(requests)))
    yield made
    made.close()


def test_changes_do_not_wait_for_a_pause_between_polls(fetcher: Fetcher, topic: str) -> None:
    stop = threading.Event()
    records: list[Record] = []

    def poll() -> None:
        while not stop.is_set():
            records.extend(fetcher.poll(1000, 0.02))

    def change() -> None:
        for partition in range(PARTITIONS):
            fetcher.assign({(topic, partition): 40})
        fetcher.drop([(topic, 0)])
        fetcher.pause([(topic, 1)])
        fetcher.resume([(topic, 1)])

    polling, changing = threading.Thread(target=poll), threading.Thread(target=change)
    polling.start()
    try:
        changing.start()
        changing.join(5)
        assert not changing.is_alive()
        until(lambda: {r.partition for r in records} >= {1, 2, 3} and polling.join(0.02) is None)
    finally:
        stop.set()
        polling.join()
        changing.join()


def test_what_comes_between_a_move_and_the_next_poll_is_dropped(fetcher: Fetcher, topic: str) -> None:
    fetcher.assign({(topic, 0): 20})
    first: list[Record] = []
    until(lambda: first.extend(fetcher.poll(5, 1.0)) or first)
    underway = fetcher._consumer.consume(5, 5.0)
    assert len(underway) == 5
    fetcher.assign({(topic, 0): 10})
    assert fetcher._take(underway) == ([], False)
    assert fetcher.position(topic, 0) == 10
    again: list[Record] = []
    until(lambda: again.extend(fetcher.poll(1000, 1.0)) or len(again) >= 40)
    assert [record.offset for record in again] == list(range(10, 50))
