"""What a Kafka error means for the log's three outcomes."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, TopicPartition

#: The member or its producer has been replaced: its group generation is over, or its producer epoch is.
FENCED_CODES = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
    }
)

#: The broker or the client refused the record before it was stored.
REFUSED_CODES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError._PURGE_QUEUE,
    }
)

TOPIC_MISSING_CODES = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)


def error_of(exception: BaseException) -> KafkaError:
    """The Kafka error that an exception of the client carries; other exceptions become one of their text."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return KafkaError(KafkaError._FAIL, str(exception))


def text(error: KafkaError) -> str:
    """An error's name and words, for a message."""
    return f"{error.name()}: {error.str()}"


def tp(topic: str, partition: int, offset: int = -1001) -> TopicPartition:
    """The client library's word for a partition and an offset."""
    return TopicPartition(topic, partition, offset)
