"""What a store holds by now: how far it has read its log, its counts, and the newest of what has a history."""

from __future__ import annotations

import msgspec

from ..core import state as s
from ..core.aggregate import rebuild
from ..core.merge import Fence
from ..ports.store import Family, View

POSITIONS = b"positions"
COUNTS = b"counts"
QUEUED = b"queued"
PEERS = b"peers"
#: META keys that say where the log was read to; they differ between a live store and its rebuild on the same events.
NOT_CONTENT = (POSITIONS,)


class Positions(msgspec.Struct, array_like=True):
    """What a store reflects: next offsets by topic name, the next event number, the writers' fences."""

    offsets: dict[str, int] = {}
    seq: int = 0
    lamport: int = 0
    fences: dict[str, Fence] = {}
    applied_epoch: int = 0
    log_identity: str = ""
    state_format: int = s.STATE_FORMAT


encode_meta = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_positions = msgspec.msgpack.Decoder(Positions).decode
_decode_counts = msgspec.msgpack.Decoder(dict[str, int]).decode
_decode_peers = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode


def read_positions(view: View) -> Positions | None:
    """What the store reflects, None when it is new."""
    data = view.get(Family.META, POSITIONS)
    return None if data is None else _decode_positions(data)


def read_counts(view: View) -> dict[str, int]:
    """Jobs by status."""
    data = view.get(Family.META, COUNTS)
    return {} if data is None else _decode_counts(data)


def read_queued(view: View) -> dict[str, int]:
    """Jobs that wait, are delayed or to be retried, by type."""
    data = view.get(Family.META, QUEUED)
    return {} if data is None else _decode_counts(data)


def read_peers(view: View) -> dict[int, int]:
    """The newest epoch of each other partition that asked for something here."""
    data = view.get(Family.META, PEERS)
    return {} if data is None else dict(_decode_peers(data))


def read_quarantines(view: View) -> dict[str, s.Quarantine]:
    """All quarantines by job type, lifted ones included."""
    found = {raw.decode(): view.latest(Family.QUARANTINES, raw) for raw in view.keys(Family.QUARANTINES)}
    return {name: s.decode_quarantine(version.value) for name, version in found.items() if version is not None}


def read_schedules(view: View) -> dict[str, s.Schedule]:
    """All schedules that are at home here, by name."""
    found = {raw.decode(): view.latest(Family.SCHEDULES, raw) for raw in view.keys(Family.SCHEDULES)}
    return {name: s.decode_schedule(version.value) for name, version in found.items() if version is not None}


def read_aggregate(view: View, key: str, seq: int | None = None) -> s.Aggregate:
    """An aggregate as of `seq` (None: the newest), from at most SNAPSHOT_EVERY stored versions."""
    raw = key.encode()
    head = view.latest(Family.AGGREGATES, raw) if seq is None else view.at(Family.AGGREGATES, raw, seq)
    if head is None:
        return s.NO_AGGREGATE
    newest = s.decode_version(head.value)
    stored = [
        (version.seq, s.decode_version(version.value))
        for version in view.history(Family.AGGREGATES, raw, first=newest.snapshot_seq, last=head.seq)
    ]
    return rebuild(stored)


def encode_positions(positions: Positions) -> bytes:
    """The META value of positions."""
    return encode_meta(positions)
