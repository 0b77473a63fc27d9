"""The port's Log on Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from rewindq.engine.ports.log import Append, GroupState, Ownership, TopicPartition, TopicSpec

from .bounds import Bounds
from .clock import Clock
from .fetch import Fetcher
from .groups import Groups
from .handles import Handles
from .member import KafkaMember
from .moving import move
from .producer import KafkaProducer
from .reader import KafkaReader
from .requests import Requests
from .settings import KafkaSettings, parse, producer_config, reader_config
from .topics import Topics


def open_kafka(url: str) -> KafkaLog:
    """Opens `kafka://host:port[,host:port][?option=value]`. Raises LogUnavailable when it does not answer."""
    log = KafkaLog(url, parse(url))
    log.identity()
    return log


class KafkaLog:
    """A Kafka cluster as a log. Safe to use from several threads."""

    def __init__(self, url: str, settings: KafkaSettings) -> None:
        self.url = url
        self._settings = settings
        requests = Requests(settings)
        self._topics = Topics(requests)
        self._bounds = Bounds(requests, self._topics)
        self._groups = Groups(requests)
        self._handles = Handles()
        self._clock = Clock(settings)

    def identity(self) -> str:
        """The cluster id."""
        return self._topics.cluster_id()

    def now_us(self, topic: str) -> int:
        """The time of the broker that leads partition 0 of `topic`. Raises LogUnavailable, NoSuchTopic."""
        self._topics.require(topic, 0)
        return self._clock.now_us(topic)

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing. Raises PartitionCountMismatch."""
        self._topics.create(specs)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics with their records; unknown names are passed over."""
        self._topics.delete(names)

    def topics(self, prefix: str = "") -> dict[str, int]:
        """Names and partition counts of the topics whose name begins with `prefix`."""
        return {name: n for name, n in sorted(self._topics.refresh().items()) if name.startswith(prefix)}

    def retention_ms(self, topic: str) -> int | None:
        """The topic's `retention.ms`; None: for ever."""
        return self._topics.retention_ms(topic)

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """The topics' ids. Raises NoSuchTopic, LogUnavailable."""
        return self._topics.ids(names)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """`(low, end)`; waits for transactions on their way, so that the end tells what became of them."""
        return self._bounds(topic, partition)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; `end` when there is none."""
        return self._bounds.at(topic, partition, timestamp_ms)

    def reader(self, positions: Mapping[TopicPartition, int]) -> KafkaReader:
        """A reader that starts at these offsets. Raises NoSuchTopic; its poll raises OffsetOutOfRange."""
        for topic, partition in positions:
            self._topics.require(topic, partition)
        fetcher = Fetcher(reader_config(self._settings, f"rewindq-reader-{_short_id()}"), self._bounds)
        fetcher.assign(positions)
        return KafkaReader(fetcher, self._handles)

    def producer(self) -> KafkaProducer:
        """A producer of this process."""
        config = producer_config(self._settings, f"rewindq-producer-{_short_id()}")
        return KafkaProducer(config, self._topics, self._settings.request_timeout)

    def join(self, group: str, inputs: Sequence[str], ownership: Ownership, *, name: str) -> KafkaMember:
        """Joins a consumer group. Raises NoSuchTopic."""
        for topic in inputs:
            self._topics.require(topic, 0)
        return KafkaMember(self._settings, self._topics, self._bounds, self._handles, group, inputs, ownership, name)

    def groups(self, prefix: str = "") -> list[GroupState]:
        """Groups whose name begins with `prefix`."""
        return self._groups.list(prefix)

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        expected: Mapping[TopicPartition, int | None] | None = None,
        appends: Sequence[Append] = (),
    ) -> None:
        """Sets committed offsets of a group without members, and appends. Raises GroupActive, OffsetsMoved."""
        if appends:
            move(self._settings, self._topics, self._groups, group, offsets, expected, appends)
        else:
            self._groups.set_offsets(group, offsets, expected)

    def delete_group(self, group: str) -> None:
        """Deletes a group without members; an unknown one is passed over. Raises GroupActive."""
        self._groups.delete(group)

    def close(self) -> None:
        """Closes the readers and members that are still open."""
        self._handles.close()
        self._clock.close()


def _short_id() -> str:
    return uuid.uuid4().hex[:8]
