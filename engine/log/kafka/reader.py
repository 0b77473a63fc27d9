"""The port's Reader on Kafka."""

from __future__ import annotations

from rewindq.engine.ports.log import Record

from .fetch import Fetcher
from .handles import Handles


class KafkaReader:
    """Reads given partitions from given offsets."""

    def __init__(self, fetcher: Fetcher, handles: Handles) -> None:
        self._fetcher = fetcher
        self._handles = handles
        handles.keep(self)

    def poll(self, limit: int = 1000, timeout: float = 0.0) -> list[Record]:
        """Up to `limit` next records. Raises OffsetOutOfRange, NoSuchTopic or LogDamaged."""
        return self._fetcher.poll(limit, timeout)

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be read; it passes transaction markers."""
        return self._fetcher.position(topic, partition)

    def close(self) -> None:
        """Frees the consumer; a second call does nothing."""
        self._fetcher.close()
        self._handles.release(self)
