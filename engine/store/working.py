"""The working set: the fold's map of one partition, in memory over its store.

The fold changes it at once; what changed since the last `collect` becomes the next write batch, which is applied only
after the log has committed the events. Values stay cached; clean ones are evicted, oldest use first, and those of a job
that is over at once: hardly anybody asks for them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import events as e
from ..core import state as s
from ..ports.store import Delete, Family, Put, View
from .cancels import KeptCancels
from .commands import AnsweredCommands
from .entries import EntryMarks
from .expiring import Expiring
from .newest import (
    COUNTS,
    PEERS,
    QUEUED,
    encode_meta,
    read_aggregate,
    read_counts,
    read_peers,
    read_quarantines,
    read_queued,
    read_schedules,
)
from .reverts import FreshVersions, RevertMarks

T = TypeVar("T")
#: The families that each job is in: an Enum's members cost more to name than a value costs to look up.
_PAYLOADS, _JOBS, _RUNNING, _READY = Family.PAYLOADS, Family.JOBS, Family.RUNNING, Family.READY
#: Payloads that are kept beside their jobs, in bytes: a long queue of large ones must not fill the memory.
PAYLOADS_MAX = 8 * 1024 * 1024


class WorkingSet(Expiring):
    """Implements the fold's `States` over a store. Keeps `cache_max` values, and so many bytes of payloads."""

    def __init__(self, view: View, *, cache_max: int = 10_000, payloads_max: int = PAYLOADS_MAX) -> None:
        self._view = view
        self._cache: dict[tuple[Family, str], tuple[Any, int]] = {}
        self._cache_max = cache_max
        self._payloads_max = payloads_max
        self._payload_bytes = 0
        #: Jobs that are over, with the turn that ended them.
        self._over: deque[tuple[int, str]] = deque()
        self._changes: list[Put | Delete] = []
        self._turn = 1
        self._stored_turn = 0
        self.counts = read_counts(view)
        self.queued = read_queued(view)
        self._queued_changed = False
        #: The schedules that are at home here, by name.
        self.schedules = read_schedules(view)
        #: The quarantines that hold now, by job type.
        self.quarantined = {name: value for name, value in read_quarantines(view).items() if value.active}
        self.cancels = KeptCancels(self._meta, self._put_meta)
        self.commands = AnsweredCommands(lambda key: self._plain(Family.MARKS, key, s.decode_answer), self._set_mark)
        self.peers = read_peers(view)
        self.fresh = FreshVersions()
        self.reverts, self.entries = RevertMarks(self._plain, self._set_mark), EntryMarks(self._plain, self._set_mark)

    # --- jobs ---

    def head(self, job_id: str) -> s.JobHead | None:
        """What never changes about the job."""
        cached = self._cache.get((_PAYLOADS, job_id))
        if cached is not None:
            known: s.JobHead | None = cached[0]
            return known
        head = self._plain(_PAYLOADS, job_id, s.decode_head)
        self._payload_bytes += _payload_size(head)
        return head

    def set_head(self, job_id: str, head: s.JobHead) -> None:
        """Stores it, once."""
        self._payload_bytes += _payload_size(head)
        self._remember(_PAYLOADS, job_id, head)
        self._changes.append(Put(_PAYLOADS, job_id.encode(), s.encode_state(head)))

    def job(self, job_id: str) -> s.JobState | None:
        """Where the job stands."""
        cached = self._cache.get((_JOBS, job_id))
        return self._versioned(_JOBS, job_id, s.decode_job) if cached is None else cached[0]

    def set_job(self, job_id: str, seq: int, before: s.JobState | None, after: s.JobState) -> None:
        """Stores its next state, its place in the ready and timer indexes, and the counts by status."""
        self._remember(_JOBS, job_id, after)
        self._changes.append(Put(_JOBS, job_id.encode(), s.encode_state(after), seq))
        old = None if before is None else before.status
        if old != after.status:
            if old is not None:
                self.counts[old] -= 1
            self.counts[after.status] = self.counts.get(after.status, 0) + 1
            if after.status in s.TERMINAL:
                self._over.append((self._turn, job_id))
        was_queued, is_queued = old in s.QUEUED, after.status in s.QUEUED
        if not was_queued and not is_queued:
            return
        head = self.head(job_id)
        if head is not None and was_queued != is_queued:
            self._count_queued(head.type, 1 if is_queued else -1)
        if before is not None and was_queued:
            place = _queue_place(job_id, head, before)
            self._changes.append(Delete(*place))
        if is_queued:
            family, key = _queue_place(job_id, head, after)
            self._changes.append(Put(family, key, job_id.encode() if family is _READY else b""))

    def _count_queued(self, job_type: str, change: int) -> None:
        count = self.queued.get(job_type, 0) + change
        if count > 0:
            self.queued[job_type] = count
        else:
            self.queued.pop(job_type, None)
        self._queued_changed = True

    def open_effects(self, job_id: str) -> s.OpenEffects | None:
        """The job's attempt and effect keys, while it is not over."""
        cached = self._cache.get((_RUNNING, job_id))
        return self._plain(_RUNNING, job_id, s.decode_open) if cached is None else cached[0]

    def set_open_effects(self, job_id: str, value: s.OpenEffects | None) -> None:
        """Stores or removes them."""
        if self.tied is not None:
            self.tied.change(self.open_effects(job_id), value)
        self._remember(_RUNNING, job_id, value)
        raw = job_id.encode()
        self._changes.append(Delete(_RUNNING, raw) if value is None else Put(_RUNNING, raw, s.encode_state(value)))

    def keep_cancel(self, job_id: str, body: e.CancelKept) -> None:
        """Keeps a cancel until its job comes; of too many, the oldest is dropped."""
        self.cancels.keep(job_id, body)

    def drop_cancel(self, job_id: str) -> None:
        """Forgets a kept cancel, where there is one."""
        self.cancels.drop(job_id)

    def _meta(self, key: str) -> bytes | None:
        return self._plain(Family.META, key, bytes)

    def _put_meta(self, key: str, value: bytes | None) -> None:
        self._remember(Family.META, key, value)
        raw = key.encode()
        self._changes.append(Delete(Family.META, raw) if value is None else Put(Family.META, raw, value))

    # --- leases, effects, aggregates ---

    def lease(self, resource: str) -> s.Lease | None:
        """The newest grant of a resource."""
        return self._versioned(Family.LEASES, resource, s.decode_lease)

    def set_lease(self, resource: str, seq: int, value: s.Lease) -> None:
        """Stores a grant or its release."""
        self._remember(Family.LEASES, resource, value)
        self._changes.append(Put(Family.LEASES, resource.encode(), s.encode_state(value), seq))

    def lent(self, resource: str) -> s.Lent | None:
        """The lease on a resource that a job of another partition holds now."""
        return self._plain(Family.LENT, resource, s.decode_lent)

    def set_lent(self, resource: str, value: s.Lent | None) -> None:
        """Stores or removes it."""
        self._remember(Family.LENT, resource, value)
        raw = resource.encode()
        self._changes.append(
            Delete(Family.LENT, raw) if value is None else Put(Family.LENT, raw, s.encode_state(value))
        )

    def set_peer(self, partition: int, epoch: int) -> None:
        """Another partition's newest owner, as far as its requests told."""
        self.peers[partition] = epoch
        self._changes.append(Put(Family.META, PEERS, encode_meta(sorted(self.peers.items()))))

    def idempotency(self, key: str) -> s.Idempotency | None:
        """What is known under an effect's key."""
        found = self.idempotency_at(key)
        return None if found is None else found[1]

    def idempotency_at(self, key: str) -> tuple[int, s.Idempotency] | None:
        """The same with the position that wrote it."""
        cached = self._cache.get((Family.IDEMPOTENCY, key))
        if cached is not None:
            found: tuple[int, s.Idempotency] | None = cached[0]
            return found
        version = self._view.latest(Family.IDEMPOTENCY, key.encode())
        found = None if version is None else (version.seq, s.decode_idempotency(version.value))
        self._cache[(Family.IDEMPOTENCY, key)] = (found, 0)
        return found

    def set_idempotency(self, key: str, seq: int, value: s.Idempotency) -> None:
        """Stores it."""
        self._remember(Family.IDEMPOTENCY, key, (seq, value))
        self._changes.append(Put(Family.IDEMPOTENCY, key.encode(), s.encode_state(value), seq))

    def aggregate(self, key: str) -> s.Aggregate:
        """The aggregate's newest version, `NO_AGGREGATE` when there is none."""
        cached = self._cache.get((Family.AGGREGATES, key))
        if cached is not None:
            value: s.Aggregate = cached[0]
            return value
        value = read_aggregate(self._view, key)
        self._cache[(Family.AGGREGATES, key)] = (value, 0)
        return value

    def set_aggregate(self, key: str, value: s.Aggregate, stored: s.AggregateVersion) -> None:
        """Stores its next version at `value.seq`."""
        self._remember(Family.AGGREGATES, key, value)
        self._changes.append(Put(Family.AGGREGATES, key.encode(), s.encode_state(stored), value.seq))
        self.fresh.add(self._turn, key, value.seq, stored)

    # --- marks ---

    def block(self, resource: str) -> s.KeyBlock | None:
        """The failed jobs that a resource's later jobs wait behind."""
        return self._plain(Family.MARKS, s.BLOCKED_KEY + resource, s.decode_block)

    def set_block(self, resource: str, value: s.KeyBlock | None) -> None:
        """Stores or removes them."""
        self._set_mark(s.BLOCKED_KEY + resource, value)

    def unique(self, job_type: str, key: str) -> s.UniqueMark | None:
        """Who holds a unique key of a type."""
        return self._plain(Family.MARKS, s.unique_key(job_type, key), s.decode_unique)

    def set_unique(self, job_type: str, key: str, value: s.UniqueMark | None) -> None:
        """Stores or removes it."""
        self._set_mark(s.unique_key(job_type, key), value)

    def held_submission(self, job_id: str) -> s.Held | None:
        """A submission that waits for an owner which knows its type."""
        return self._plain(Family.MARKS, s.HELD + job_id, s.decode_held)

    def set_held_submission(self, job_id: str, value: s.Held | None) -> None:
        """Stores or removes it."""
        self._set_mark(s.HELD + job_id, value)

    def note(self, job_type: str) -> s.TypeNote | None:
        """Why jobs of a type wait."""
        return self._plain(Family.MARKS, s.TYPE_NOTE + job_type, s.decode_note)

    def set_note(self, job_type: str, value: s.TypeNote | None) -> None:
        """Stores or removes it."""
        self._set_mark(s.TYPE_NOTE + job_type, value)

    def _set_mark(self, key: str, value: s.State | None) -> None:
        self._remember(Family.MARKS, key, value)
        raw = key.encode()
        self._changes.append(
            Delete(Family.MARKS, raw) if value is None else Put(Family.MARKS, raw, s.encode_state(value))
        )

    # --- quarantines ---

    def quarantine(self, job_type: str) -> s.Quarantine | None:
        """A job type's quarantine, lifted ones included."""
        return self._versioned(Family.QUARANTINES, job_type, s.decode_quarantine)

    def set_quarantine(self, job_type: str, seq: int, value: s.Quarantine) -> None:
        """Stores it."""
        self._remember(Family.QUARANTINES, job_type, value)
        self._changes.append(Put(Family.QUARANTINES, job_type.encode(), s.encode_state(value), seq))
        self.quarantined.pop(job_type, None)
        if value.active:
            self.quarantined[job_type] = value

    def held(self) -> int:
        """Jobs whose next attempt a quarantine holds back."""
        return sum(self.queued.get(name, 0) for name in self.quarantined)

    # --- schedules ---

    def set_schedule(self, name: str, seq: int, value: s.Schedule) -> None:
        """Stores a schedule."""
        self.schedules[name] = value
        self._changes.append(Put(Family.SCHEDULES, name.encode(), s.encode_state(value), seq))

    # --- turns ---

    def collect(self) -> tuple[int, list[Put | Delete]]:
        """Ends the turn: its number and what it changed, to be written once the log has committed it."""
        changes, self._changes = self._changes, []
        if changes:
            changes.append(Put(Family.META, COUNTS, encode_meta(self.counts)))
        if self._queued_changed:
            self._queued_changed = False
            changes.append(Put(Family.META, QUEUED, encode_meta(self.queued)))
        turn = self._turn
        self._turn += 1
        return turn, changes

    def stored(self, turn: int) -> None:
        """The changes up to this turn are in the store: their values may be evicted."""
        self._stored_turn = turn
        self.fresh.drop(turn)
        while self._over and self._over[0][0] <= turn:
            _, job_id = self._over.popleft()
            for family in (_PAYLOADS, _JOBS, _RUNNING):
                self._drop((family, job_id))
        if len(self._cache) > self._cache_max or self._payload_bytes > self._payloads_max:
            self._evict()

    def _evict(self) -> None:
        for place in list(self._cache):
            many = len(self._cache) > self._cache_max * 3 // 4
            if not many and self._payload_bytes <= self._payloads_max * 3 // 4:
                return
            if many or place[0] is _PAYLOADS:
                self._drop(place)

    def _drop(self, place: tuple[Family, str]) -> None:
        """Forgets a value, unless it is not in the store yet."""
        cached = self._cache.get(place)
        if cached is None or cached[1] > self._stored_turn:
            return
        del self._cache[place]
        if place[0] is _PAYLOADS:
            self._payload_bytes -= _payload_size(cached[0])

    def _remember(self, family: Family, key: str, value: object) -> None:
        place = (family, key)
        self._cache.pop(place, None)
        self._cache[place] = (value, self._turn)

    def _plain(self, family: Family, key: str, decode: Callable[[bytes], T]) -> T | None:
        cached = self._cache.get((family, key))
        if cached is not None:
            value: T | None = cached[0]
            return value
        data = self._view.get(family, key.encode())
        value = None if data is None else decode(data)
        self._cache[(family, key)] = (value, 0)
        return value

    def _versioned(self, family: Family, key: str, decode: Callable[[bytes], T]) -> T | None:
        cached = self._cache.get((family, key))
        if cached is not None:
            value: T | None = cached[0]
            return value
        version = self._view.latest(family, key.encode())
        value = None if version is None else decode(version.value)
        self._cache[(family, key)] = (value, 0)
        return value


def _payload_size(head: s.JobHead | None) -> int:
    return 0 if head is None or head.payload is None else len(head.payload)


def _queue_place(job_id: str, head: s.JobHead | None, job: s.JobState) -> tuple[Family, bytes]:
    """Where a queued job stands: in the index of timers while it has a due time, else in that of ready jobs."""
    if job.status != s.WAITING and job.due is not None:
        return Family.TIMERS, s.timer_key(job.due, job_id)
    return _READY, s.ready_key(0, 0) if head is None else s.ready_key(head.priority, head.accepted_seq)


def trace_put(job_id: str, seq: int, domain: bool, offset: int) -> Put:
    """Points from a job's trace to a record: which topic, which offset."""
    place = offset.to_bytes((offset.bit_length() + 7) >> 3, "big")
    return Put(Family.TRACES, s.trace_key(job_id, seq), (b"\1" if domain else b"\0") + place)
