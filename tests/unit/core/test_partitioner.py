"""Partitions agree with Kafka's own clients."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message, Producer
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_the_java_clients(key: bytes, java: int) -> None:
    """The vectors of the Java client's own unit test, which are signed."""
    assert murmur2(key) == java & 0xFFFFFFFF
    assert partition_for(key, 7) == (java & 0x7FFFFFFF) % 7


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_partition_is_in_range_and_stable(key: bytes, partitions: int) -> None:
    place = partition_for(key, partitions)
    assert 0 <= place < partitions
    assert place == partition_for(bytes(bytearray(key)), partitions)


def test_librdkafka_puts_the_same_keys_on_the_same_partitions() -> None:
    """Its own mock cluster chooses: keys of all lengths modulo four, high bytes and NULs among them."""
    keys = [bytes((i * 37 + at * 11) % 256 for at in range(i % 23)) for i in range(1, 400) if i % 23]
    chosen: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        chosen[key] = partition

    producer = Producer({"test.mock.num.brokers": 1, "partitioner": "murmur2", "linger.ms": 5})
    for key in keys:
        producer.produce("keys", key=key, value=b"", on_delivery=delivered)
    assert producer.flush(30) == 0
    count = len(producer.list_topics("keys", timeout=10).topics["keys"].partitions)
    assert count > 1
    assert chosen == {key: partition_for(key, count) for key in keys}
    assert len(set(chosen.values())) == count
