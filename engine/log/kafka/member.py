"""The port's Member on Kafka: a group consumer for ownership, a fetcher for records, a transaction producer.

The group consumer fetches nothing. It only tells which partitions are owned, so that records of every input
topic come the same way, start where the worker says, and a rebalance never meets prefetched records.

A zombie is fenced three times: by the local view of what is owned, by the group metadata (see
`GroupMetadata.joined`), and by the broker, which refuses offsets of an old generation; every turn carries
offsets.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from rewindq.engine.ports.log import (
    AppendRefused,
    Fenced,
    LogUnavailable,
    Ownership,
    Record,
    TopicPartition,
    Turn,
)

from .bounds import Bounds
from .delivery import check
from .errors import error_of, text, tp
from .fetch import Fetcher
from .handles import Handles
from .ownership import GroupMetadata, read_metadata
from .settings import FatalNote, KafkaSettings, group_config, reader_config, transaction_config
from .topics import Topics
from .transactions import StaleGenerationError, Transactions

# How long `poll` waits for records before it looks after the group again, in seconds.
_SERVE_EVERY = 0.02
# How long a partition's offsets are asked for in one go, while an earlier owner's transaction is being ended.
_STABLE_WAIT = 0.05
# How long a commit keeps trying while the group's generation moves on around it, in seconds.
_GENERATION_WAIT = 3.0
# Stands for the offset of a partition that the group has committed nothing for.
_NOTHING = -1
_AUTH_CODES = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION})


class KafkaMember:
    """One worker's membership in a consumer group."""

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Topics,
        bounds: Bounds,
        handles: Handles,
        group: str,
        inputs: Sequence[str],
        ownership: Ownership,
        name: str,
    ) -> None:
        # Known before the coordinator has given an id of its own, and listed by it as the client's id.
        self.member_id = f"{name}-{uuid.uuid4().hex[:12]}"
        self._settings = settings
        self._topics = topics
        self._bounds = bounds
        self._handles = handles
        self._group = group
        self._inputs = tuple(inputs)
        self._ownership = ownership
        self._fetcher = Fetcher(reader_config(settings, f"{self.member_id}-fetch"), bounds)
        # A restarted static member ends its predecessor's open transaction by taking the same id.
        transactional_id = f"{group}.{settings.instance or self.member_id}"
        self._transactions = Transactions(
            transaction_config(settings, self.member_id, transactional_id), settings.transaction_timeout
        )
        self._commit_lock = threading.Lock()  # one transaction at a time; handing over waits for it
        self._group_lock = threading.RLock()  # asking the consumer for its metadata while it polls blocks both
        self._owned: set[int] = set()
        self._unstable: set[int] = set()  # assigned, but an earlier owner's transaction is not decided yet
        self._committed: dict[int, int] = {}  # of inputs[0]: what a turn without offsets of its own sends
        self._closed = False
        self._telling = False  # `poll` was called from within `revoked` or `lost`
        self._fatal = FatalNote()
        self._consumer = Consumer({**group_config(settings, group, self.member_id), "logger": self._fatal})
        self._metadata = read_metadata(raw_metadata(self._consumer))
        self._consumer.subscribe(
            [self._inputs[0]],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        handles.keep(self)

    # Records

    def poll(self, timeout: float, limit: int = 1000) -> list[Record]:
        """Next records of started, unpaused partitions; waits up to `timeout` seconds; runs rebalances."""
        deadline = time.monotonic() + timeout
        while True:
            if not self._telling:
                self._serve_group()
            left = deadline - time.monotonic()
            records = self._fetcher.poll(limit, max(0.0, min(left, _SERVE_EVERY)))
            if records or left <= 0:
                return records

    def start(self, partition: int, offsets: Mapping[str, int]) -> None:
        """Begins to fetch an owned partition's input topics at these offsets. Raises Fenced if not owned."""
        with self._commit_lock:
            if partition not in self._owned:
                raise self._fenced([partition])
            if self._inputs[0] in offsets and self._committed.get(partition, _NOTHING) < 0:
                self._committed[partition] = offsets[self._inputs[0]]
            self._fetcher.assign({(topic, partition): offset for topic, offset in offsets.items()})

    def stop(self, partition: int) -> None:
        """Fetches nothing more of a partition, which stays owned, until `start` is called for it again."""
        self._fetcher.drop(self._keys([partition]))

    def pause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Stops delivering a started partition's records, of some input topics (None: of all), keeping its position."""
        self._fetcher.pause(self._keys([partition], topics))

    def unpause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Delivers a paused partition's records again; as `pause`."""
        self._fetcher.resume(self._keys([partition], topics))

    def _keys(self, partitions: Iterable[int], topics: Collection[str] | None = None) -> list[TopicPartition]:
        wanted = self._inputs if topics is None else topics
        return [(topic, partition) for partition in partitions for topic in wanted]

    # Commits

    def commit(self, turn: Turn) -> list[int]:
        """Appends the turn's records and commits its offsets in one transaction; returns their offsets."""
        try:
            check(turn.appends, self._topics)
        except LogUnavailable as error:
            raise AppendRefused(f"nothing was appended: {error}") from error
        deadline = time.monotonic() + _GENERATION_WAIT
        with self._commit_lock:
            if not (turn.appends or turn.offsets or turn.partitions):
                return []
            while True:
                used = self._check_owned(turn.partitions)
                try:
                    return self._run(turn, used)
                except LogUnavailable as error:
                    raise AppendRefused(f"nothing was appended: {error}") from error
                except StaleGenerationError as stale:
                    # A rebalance passed by. With cooperative assignment what we own stays ours through it,
                    # until we hand it over ourselves; the coordinator wants to hear it under the new
                    # generation.
                    if not self._await_generation(used, deadline):
                        raise Fenced(f"{stale}; nothing was appended: join again") from stale

    def _run(self, turn: Turn, used: GroupMetadata) -> list[int]:
        offsets = dict(turn.offsets)
        for partition in turn.partitions:
            key = (self._inputs[0], partition)
            if key not in offsets:
                offsets[key] = self._last_committed(partition)
        result = self._transactions.run(turn.appends, [tp(*key, offset) for key, offset in offsets.items()], used.raw)
        for (topic, partition), offset in offsets.items():
            if topic == self._inputs[0]:
                self._committed[partition] = offset
        return result

    def _check_owned(self, partitions: frozenset[int]) -> GroupMetadata:
        metadata = self._metadata
        foreign = sorted(partitions - self._owned)
        if foreign:
            raise self._fenced(foreign)
        if partitions and not metadata.joined:
            raise self._fenced(sorted(partitions))
        return metadata

    def _await_generation(self, used: GroupMetadata, deadline: float) -> bool:
        """Whether the group's new generation became known; the commit's thread may be the one that polls."""
        pause = threading.Event()
        while time.monotonic() < deadline:
            if self._group_lock.acquire(timeout=0.005):
                try:
                    self._refresh_metadata()
                finally:
                    self._group_lock.release()
            if self._metadata.raw != used.raw:
                return True
            pause.wait(0.005)
        return False

    def _last_committed(self, partition: int) -> int:
        """What the group has committed for this partition of inputs[0]; its low when that is nothing."""
        offset = self._committed.get(partition)
        if offset is None:
            raise self._fenced([partition])  # lost since this commit began
        return offset if offset >= 0 else self._bounds(self._inputs[0], partition)[0]

    def _stored_offsets(self, partitions: Iterable[int], timeout: float) -> dict[int, int]:
        asked = [tp(self._inputs[0], partition) for partition in partitions]
        try:
            found = self._consumer.committed(asked, timeout)
        except KafkaException as exception:
            raise self._settings.unavailable(
                f"offsets of group {self._group}", text(error_of(exception))
            ) from exception
        return {each.partition: each.offset for each in found if each.error is None}

    def _fenced(self, partitions: list[int]) -> Fenced:
        return Fenced(
            f"member {self.member_id} of group {self._group} does not own partitions {partitions}: "
            "nothing was appended; stop writing for them and poll to learn what is owned"
        )

    # The group

    def _serve_group(self) -> None:
        if self._closed:
            raise LogUnavailable(f"member {self.member_id} of group {self._group} is closed: join again")
        with self._group_lock:
            message = self._consumer.poll(0)
            self._refresh_metadata()
        error = message.error() if message is not None else None
        if self._fatal.reason is not None:
            raise LogUnavailable(
                f"member {self.member_id} cannot go on in group {self._group}: {self._fatal.reason}; "
                "give each running worker an instance id of its own"
            )
        if error is not None and (error.fatal() or error.code() in _AUTH_CODES):
            raise LogUnavailable(
                f"member {self.member_id} cannot go on in group {self._group}: {text(error)}; join again"
            )
        if self._unstable:
            self._announce_stable()

    def _announce_stable(self) -> None:
        """Tells of new partitions once no transaction of an earlier owner can commit any more.

        Until then the coordinator withholds the partition's offsets; the new owner would otherwise read the
        log, and then records that were there before would appear behind its back.
        """
        stable: dict[int, int] = {}
        for partition in sorted(self._unstable):
            try:
                # One by one: the coordinator's answer for several is withheld when one of them is undecided.
                stable |= self._stored_offsets([partition], _STABLE_WAIT)
            except LogUnavailable:
                continue  # still undecided, or the coordinator is away: asked again by the next poll
        ready = sorted(self._unstable & stable.keys())
        self._unstable -= stable.keys()
        with self._commit_lock:
            self._owned.update(ready)
            self._committed.update({partition: stable[partition] for partition in ready})
        if ready:
            self._ownership.assigned(ready)

    def _refresh_metadata(self) -> None:
        # While it is being closed, the consumer calls back and may have no metadata any more.
        if not self._closed:
            self._metadata = read_metadata(raw_metadata(self._consumer))

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._refresh_metadata()
        # At some absolute offset, so that the client asks nobody for one, and paused, so that it fetches
        # nothing.
        consumer.incremental_assign([tp(each.topic, each.partition, 0) for each in partitions])
        if partitions:
            consumer.pause(partitions)
        self._unstable.update(each.partition for each in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """The order matters: deliver nothing more, let the last commit end, and only then let go."""
        self._refresh_metadata()
        numbers = sorted(each.partition for each in partitions)
        self._hand_over(numbers, self._ownership.revoked)
        with self._commit_lock:
            self._forget(numbers)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._refresh_metadata()
        numbers = sorted(each.partition for each in partitions)
        # A commit under way is not waited for: the broker refuses it.
        lost = [number for number in numbers if number in self._owned]
        self._forget(numbers)
        self._hand_over(lost, self._ownership.lost)
        consumer.incremental_unassign(partitions)

    def _hand_over(self, numbers: list[int], tell: Callable[[list[int]], None]) -> None:
        self._fetcher.drop(self._keys(numbers))
        told = [number for number in numbers if number not in self._unstable]
        self._unstable.difference_update(numbers)
        if told and not self._closed:
            self._telling = True
            try:
                tell(told)
            finally:
                self._telling = False

    def _forget(self, numbers: list[int]) -> None:
        self._owned.difference_update(numbers)
        for number in numbers:
            self._committed.pop(number, None)

    def close(self) -> None:
        """Leaves the group at once. Nothing of the Ownership is called; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with self._commit_lock:
            self._forget(list(self._owned))
            self._transactions.close()
        with self._group_lock:
            self._consumer.close()
        self._fetcher.close()
        self._handles.release(self)


def raw_metadata(consumer: Consumer) -> bytes:
    """A consumer's membership as the client library serialises it; of one that never joined, of no member."""
    metadata: Any = consumer.consumer_group_metadata()
    return bytes(metadata)
