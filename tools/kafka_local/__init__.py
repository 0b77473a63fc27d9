"""A real local Kafka: KRaft brokers on this machine's Java, for development, tests and the demo."""

from .cluster import LocalKafka, await_brokers, start, stop
from .errors import LocalKafkaError

__all__ = ["LocalKafka", "LocalKafkaError", "await_brokers", "start", "stop"]
