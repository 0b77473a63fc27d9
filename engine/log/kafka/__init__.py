"""The log on Kafka: any 3.x or 4.x cluster, through confluent-kafka."""

from .log import KafkaLog, open_kafka

__all__ = ["KafkaLog", "open_kafka"]
