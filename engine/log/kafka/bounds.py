"""Where a partition's records begin and end."""

from __future__ import annotations

import threading
import time

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from rewindq.engine.ports.log import LogUnavailable, NoSuchTopic

from .errors import tp
from .requests import Requests
from .topics import Topics

# A dead worker's open transaction is ended by its time-out, which brokers look at every 10 s by default.
_UNDECIDED_GRACE = 15.0
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Bounds:
    """Answers `(low, end)` of a partition when called. Safe to use from several threads."""

    def __init__(self, requests: Requests, topics: Topics) -> None:
        self._requests = requests
        self._topics = topics
        self._pause = threading.Event()

    def __call__(self, topic: str, partition: int) -> tuple[int, int]:
        """`(low, end)`, once every record that is stored now is decided.

        A transaction on its way hides its records and those behind it. Whoever reads the end to learn what
        became of a commit, or takes a partition over, needs the decision, so this waits for it; a dead
        member's transaction is ended by its time-out. Raises NoSuchTopic, LogUnavailable.
        """
        self._topics.require(topic, partition)
        deadline = time.monotonic() + self._requests.settings.transaction_timeout + _UNDECIDED_GRACE
        low = self._offset(topic, partition, _EARLIEST)
        stored = self._offset(topic, partition, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        while (end := self._offset(topic, partition, _LATEST)) < stored:
            if time.monotonic() > deadline:
                raise LogUnavailable(
                    f"{topic}[{partition}] has an undecided transaction at offset {end} past its time-out: "
                    "find it with kafka-transactions.sh find-hanging, and abort it"
                )
            self._pause.wait(0.003)
        return low, end

    def at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; `end` when there is none."""
        _, end = self(topic, partition)
        found = self._offset(topic, partition, OffsetSpec.for_timestamp(max(0, timestamp_ms)))
        return end if found < 0 else min(found, end)

    def _offset(
        self,
        topic: str,
        partition: int,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> int:
        what = f"offsets of {topic}[{partition}]"
        key, client = tp(topic, partition), self._requests.client
        deadline = time.monotonic() + self._requests.settings.request_timeout
        while True:
            try:
                found = self._requests.ask(
                    what,
                    lambda t: client.list_offsets({key: spec}, isolation_level=isolation, request_timeout=t)[key],
                )
                return int(found.offset)
            except NoSuchTopic:
                # Either it was deleted since, or it is so new that this broker has not heard of it.
                self._topics.refresh()
                self._topics.require(topic, partition)
                if time.monotonic() > deadline:
                    raise
            self._pause.wait(0.02)
