"""The cluster's clock, as the broker that leads a partition tells it with the time of a record appended there."""

from __future__ import annotations

import threading

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from rewindq.engine.ports.log import LogUnavailable

from .errors import error_of, text
from .settings import KafkaSettings, producer_config

# Beyond the client's own delivery time-out, after which it must have answered.
_ANSWER_GRACE = 5.0


class Clock:
    """Asks for the time. Safe to use from several threads, one after the other."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def now_us(self, topic: str) -> int:
        """Microseconds since 1970, in whole milliseconds. Raises LogUnavailable."""
        told: list[tuple[KafkaError | None, tuple[int, int]]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append((error, message.timestamp()))

        with self._lock:
            producer = self._open()
            try:
                producer.produce(topic, b"", None, 0, delivered)
                producer.flush(self._settings.request_timeout + _ANSWER_GRACE)
            except KafkaException as exception:
                raise self._settings.unavailable("asking for its time", text(error_of(exception))) from exception
        if not told:
            raise self._settings.unavailable("asking for its time", "no answer in time")
        error, (kind, milliseconds) = told[0]
        if error is not None:
            raise self._settings.unavailable("asking for its time", text(error))
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise LogUnavailable(
                f"topic {topic} keeps its producers' times, so it cannot tell the broker's: "
                "set its message.timestamp.type to LogAppendTime"
            )
        return milliseconds * 1000

    def close(self) -> None:
        """Frees the connection."""
        with self._lock:
            self._producer = None

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(producer_config(self._settings, "rewindq-clock"))
        return self._producer
