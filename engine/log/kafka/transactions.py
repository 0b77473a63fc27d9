"""A member's transactional producer: one commit at a time, each ending in one of the three outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from rewindq.engine.ports.log import Append, AppendRefused, Fenced, LogError, OutcomeUnknown

from .delivery import Delivery
from .errors import FENCED_CODES, error_of, text


class StaleGenerationError(LogError):
    """Surely not appended: the group's generation moved on meanwhile, which says nothing of ownership."""


class Transactions:
    """Runs transactions under one transactional id. For one thread at a time."""

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self._config = dict(config)
        self._timeout = timeout
        self._producer: Producer | None = None

    def open(self) -> None:
        """Ends what an earlier producer of this id left open, and shuts that one out. Raises as `run`."""
        self._open(time.monotonic() + self._timeout)

    def run(
        self,
        records: Sequence[Append],
        offsets: list[TopicPartition],
        group_metadata: bytes,
        check: Callable[[], None] | None = None,
    ) -> list[int]:
        """Appends and commits; returns the records' offsets. What `check` raises before the commit undoes it.

        Raises Fenced, StaleGenerationError or AppendRefused (surely nothing was done), or OutcomeUnknown.
        """
        deadline = time.monotonic() + self._timeout
        producer = self._open(deadline)
        delivery = Delivery(records)
        try:
            producer.begin_transaction()
            delivery.send(producer)
            if offsets:
                self._send_offsets(producer, offsets, group_metadata, deadline)
        except KafkaException as exception:
            # The commit was not asked for, so whatever happened, nothing of this can become visible.
            self._abort(producer)
            raise self._undone(error_of(exception), delivery) from exception
        if check is not None:
            try:
                check()
            except LogError:
                self._abort(producer)
                raise
        self._commit(producer, delivery, deadline)
        return delivery.offsets()

    def _open(self, deadline: float) -> Producer:
        if self._producer is None:
            producer = Producer(self._config)
            try:
                # Ends what an earlier producer of this id left open: its outcome is decided when this
                # returns.
                producer.init_transactions(max(0.1, deadline - time.monotonic()))
            except KafkaException as exception:
                raise self._undone(error_of(exception), None) from exception
            self._producer = producer
        return self._producer

    def _send_offsets(
        self, producer: Producer, offsets: list[TopicPartition], group_metadata: bytes, deadline: float
    ) -> None:
        while True:
            left = deadline - time.monotonic()
            try:
                # The stubs call the metadata an opaque object; it is the serialised bytes.
                producer.send_offsets_to_transaction(offsets, group_metadata, max(0.1, left))
                return
            except KafkaException as exception:
                if not error_of(exception).retriable() or left <= 0:
                    raise

    def _commit(self, producer: Producer, delivery: Delivery, deadline: float) -> None:
        while True:
            left = deadline - time.monotonic()
            try:
                producer.commit_transaction(max(0.1, left))
                return
            except KafkaException as exception:
                error = error_of(exception)
                if error.txn_requires_abort():
                    self._abort(producer)
                    raise self._undone(error, delivery) from exception
                if error.code() in FENCED_CODES:
                    # Nobody else uses this id: the coordinator itself ended the transaction, by its time-out.
                    self._producer = None
                    raise self._undone(error, delivery) from exception
                if error.retriable() and left > 0:
                    continue  # asking again for the same commit is safe: the coordinator remembers its answer
                self._resolve()
                raise OutcomeUnknown(
                    f"the commit of {len(delivery.records)} record(s) may or may not have happened "
                    f"({text(error)}): read the log's end before going on"
                ) from exception

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(self._timeout)
        except KafkaException:
            # A fenced or broken producer: the next one of this id ends the transaction, or the broker's
            # time-out.
            self._producer = None

    def _resolve(self) -> None:
        """Tries to have the outcome decided before the caller reads the log's end."""
        self._producer = None
        try:
            self._open(time.monotonic() + self._timeout / 2)
        except (Fenced, AppendRefused):
            return  # not reached now: the next turn tries again, or the broker's time-out ends it

    def _undone(self, error: KafkaError, delivery: Delivery | None) -> LogError:
        if error.code() == KafkaError.ILLEGAL_GENERATION:
            return StaleGenerationError(text(error))
        if error.code() in FENCED_CODES:
            return Fenced(f"nothing was appended, another member has taken over ({text(error)}): join again")
        reason = text(error)
        if delivery is not None and delivery.errors:
            reason = f"{reason}; {delivery.reason()}"
        return AppendRefused(f"the transaction was aborted, nothing was appended: {reason}")

    def close(self) -> None:
        """Ends what is open and frees the producer."""
        if self._producer is not None:
            self._abort(self._producer)
        self._producer = None
