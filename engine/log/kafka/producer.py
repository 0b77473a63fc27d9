"""The port's Producer on Kafka: idempotent, outside of groups."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from rewindq.engine.ports.log import Append, AppendRefused, OutcomeUnknown

from .delivery import Delivery, check
from .errors import REFUSED_CODES, error_of, text
from .topics import Topics

# Beyond the client's own delivery time-out, after which it must have answered for every record.
_ANSWER_GRACE = 5.0


class KafkaProducer:
    """Appends durably. Safe to use from several threads, whose records travel together."""

    def __init__(self, config: Mapping[str, Any], topics: Topics, timeout: float) -> None:
        self._config = dict(config)
        self._topics = topics
        self._timeout = timeout
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def append(self, records: Sequence[Append]) -> list[int]:
        """Appends all and returns their offsets in order, once every in-sync replica has them."""
        if not records:
            return []
        check(records, self._topics)
        producer = self._open()
        delivery = Delivery(records)
        try:
            delivery.send(producer)
        except KafkaException as exception:
            producer.flush(self._timeout)
            self._give_up(producer)
            error = error_of(exception)
            if delivery.pending == len(records) == 1 and error.code() in REFUSED_CODES:
                raise AppendRefused(f"{records[0].topic}[{records[0].partition}]: {text(error)}") from exception
            raise self._unknown(records, text(error)) from exception
        if delivery.wait(producer, self._timeout + _ANSWER_GRACE) and not delivery.errors:
            return delivery.offsets()
        if delivery.refused():
            raise AppendRefused(f"{len(records)} record(s) for {records[0].topic}: {delivery.reason()}")
        self._give_up(producer)
        raise self._unknown(records, delivery.reason())

    def _unknown(self, records: Sequence[Append], reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{len(records)} record(s) for {records[0].topic} may or may not have been appended ({reason}): "
            "read the log's end, or append again under the same job id"
        )

    def _open(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._config)
            return self._producer

    def _give_up(self, producer: Producer) -> None:
        """After an unknown outcome the next append begins anew: nothing of this one may be sent later."""
        with self._lock:
            if self._producer is producer:
                self._producer = None

    def close(self) -> None:
        """Flushes and frees."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(self._timeout)
