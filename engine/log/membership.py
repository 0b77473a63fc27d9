"""A member of a consumer group over a coordinator that every member can ask: shared by the local logs.

There is no leader. Each member works out the same balanced assignment from the same shared rows and acts only
for itself: it hands over what it has too much of, and takes what is free. Every lease taken gets a new
generation, and a commit names the generations it was made under, so whoever lost a partition is fenced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ..ports.log import Fenced, LogUnavailable, Ownership, Record, TopicPartition, Turn
from .fetching import Fetcher, Mark, Source

# How long a waiting member goes without looking whether its peers live: a killed one is noticed within this.
PEER_CHECK_S = 0.1


class Change(NamedTuple):
    """What `Seat.sync` found: leases lost, to be handed over, and newly taken (partition -> generation)."""

    lost: list[int]
    surplus: list[int]
    taken: dict[int, int]


def compare(owned: Mapping[int, int], held: Mapping[int, int], surplus: list[int], taken: Mapping[int, int]) -> Change:
    """The change between what a member believes to own and holds by the group's record, before `taken`.

    A lease held but not known was taken by a `sync` whose answer never arrived: it counts as taken now.
    """
    lost = sorted(partition for partition in owned if held.get(partition) != owned[partition])
    found = {partition: held[partition] for partition in held if owned.get(partition) != held[partition]}
    return Change(lost, [partition for partition in surplus if partition not in found], {**found, **taken})


class Seat(Protocol):
    """One member's place at the coordinator."""

    member_id: str

    def stale(self, mark: Mark) -> bool:
        """Whether the group may have changed since the last `sync`, or peers are due to be looked at."""
        ...

    def sync(self, owned: Mapping[int, int]) -> Change:
        """Brings this member up to date; `owned`: the leases it believes to hold. Raises LogUnavailable."""
        ...

    def expired(self) -> bool:
        """Whether the membership could not be renewed for so long that others may have taken it as gone."""
        ...

    def release(self, partitions: Iterable[int]) -> None:
        """Gives leases back."""
        ...

    def commit(self, turn: Turn, generations: Mapping[int, int]) -> list[int]:
        """Appends and commits under these leases. Raises as `Member.commit`."""
        ...

    def leave(self) -> None:
        """Ends the membership and gives all leases back."""
        ...


class GroupMember:
    """The port's Member."""

    def __init__(self, seat: Seat, source: Source, group: str, inputs: Sequence[str], ownership: Ownership) -> None:
        self.member_id = seat.member_id
        self._seat = seat
        self._source = source
        self._group = group
        self._inputs = tuple(inputs)
        self._ownership = ownership
        self._fetcher = Fetcher(source)
        self._owned: dict[int, int] = {}  # partition -> generation of its lease
        self._lock = threading.Lock()  # guards _owned: `commit` runs beside `poll`
        self._closed = False
        self._telling = False  # `poll` was called from within `revoked` or `lost`

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def poll(self, timeout: float, limit: int = 1000) -> list[Record]:
        """Next records of started, unpaused partitions; waits up to `timeout` seconds; runs rebalances."""
        deadline = time.monotonic() + timeout if timeout > 0 else None
        while True:
            mark = self._source.mark()
            if not self._telling:
                self._rebalance(mark)
            records = self._fetcher.take(limit)
            if records or deadline is None:
                return records
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return records
            self._source.wait(mark, min(remaining, PEER_CHECK_S))

    def start(self, partition: int, offsets: Mapping[str, int]) -> None:
        """Begins to fetch a partition's input topics at these offsets. Raises Fenced when it is not owned."""
        with self._lock:
            if partition not in self._owned:
                raise self._fenced([partition])
            self._fetcher.follow({(topic, partition): offset for topic, offset in offsets.items()})

    def stop(self, partition: int) -> None:
        """Fetches nothing more of a partition, which stays owned, until `start` is called for it again."""
        self._fetcher.drop(self._keys([partition]))

    def pause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Stops delivering a started partition's records, of some input topics (None: of all), keeping its position."""
        self._fetcher.pause(self._keys([partition], topics), paused=True)

    def unpause(self, partition: int, topics: Collection[str] | None = None) -> None:
        """Delivers a paused partition's records again; as `pause`."""
        self._fetcher.pause(self._keys([partition], topics), paused=False)

    def commit(self, turn: Turn) -> list[int]:
        """Appends records and commits offsets in one transaction; returns the records' offsets."""
        with self._lock:
            foreign = sorted(turn.partitions - self._owned.keys())
            generations = {p: self._owned[p] for p in turn.partitions if p in self._owned}
        if foreign:
            raise self._fenced(foreign)
        return self._seat.commit(turn, generations)

    def close(self) -> None:
        """Leaves the group at once. Nothing of the Ownership is called; a second call does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            owned = list(self._owned)
            self._owned.clear()
        self._fetcher.drop(self._keys(owned))
        if not closed:
            self._seat.leave()

    def _rebalance(self, mark: Mark) -> None:
        if self._closed:
            raise LogUnavailable(f"member {self.member_id} of group {self._group} is closed: join again")
        try:
            if not self._seat.stale(mark):
                return
            change = self._seat.sync(self._owned)
        except LogUnavailable:
            if self._owned and self._seat.expired():
                self._lose(sorted(self._owned))
            raise
        if change.lost:
            self._lose(change.lost)
        if change.surplus:
            self._hand_over(change.surplus)
        if change.taken:
            with self._lock:
                self._owned.update(change.taken)
            self._ownership.assigned(sorted(change.taken))

    def _lose(self, partitions: list[int]) -> None:
        self._fetcher.drop(self._keys(partitions))
        with self._lock:
            for partition in partitions:
                del self._owned[partition]
        self._tell(self._ownership.lost, partitions)

    def _hand_over(self, partitions: list[int]) -> None:
        """The order matters: deliver nothing more, let the last commit end, and only then free the leases."""
        self._fetcher.drop(self._keys(partitions))
        self._tell(self._ownership.revoked, partitions)
        with self._lock:
            for partition in partitions:
                self._owned.pop(partition, None)  # `close` may have come meanwhile
        self._seat.release(partitions)

    def _tell(self, tell: Callable[[list[int]], None], partitions: list[int]) -> None:
        self._telling = True
        try:
            tell(partitions)
        finally:
            self._telling = False

    def _keys(self, partitions: Iterable[int], topics: Collection[str] | None = None) -> list[TopicPartition]:
        wanted = self._inputs if topics is None else topics
        return [(topic, partition) for partition in partitions for topic in wanted]

    def _fenced(self, partitions: list[int]) -> Fenced:
        return Fenced(
            f"member {self.member_id} of group {self._group} does not own partitions {partitions}: "
            "nothing was appended; stop writing for them and poll to learn what is owned"
        )
