"""Dropping what is known under effects' keys, and which keys jobs that are not over rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..core import state as s
from ..ports.store import Delete, Family, Put, View


class TiedKeys:
    """How many jobs that are not over have an effect under each key."""

    def __init__(self, jobs: Iterable[s.OpenEffects | None]) -> None:
        self._counts: Counter[str] = Counter()
        for effects in jobs:
            self._counts.update(_keys(effects))

    def change(self, before: s.OpenEffects | None, after: s.OpenEffects | None) -> None:
        """A job's effects have changed."""
        self._counts.update(_keys(after))
        for key in _keys(before):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def __contains__(self, key: str) -> bool:
        return key in self._counts


def _keys(effects: s.OpenEffects | None) -> set[str]:
    return set() if effects is None else {key for key, _ in effects.effects.values()}


class Expiring:
    """The part of the working set that drops keys. `tied` is None until somebody asks: most workers never do."""

    _view: View
    _cache: dict[tuple[Family, str], tuple[Any, int]]
    _changes: list[Put | Delete]
    _turn: int
    tied: TiedKeys | None = None

    def tie_keys(self) -> TiedKeys:
        """The keys that jobs which are not over rely on; kept up to date from now on."""
        jobs = {raw.decode(): s.decode_open(value) for raw, value in self._view.scan(Family.RUNNING)}
        for (family, job_id), (value, _) in self._cache.items():
            if family is Family.RUNNING:
                jobs[job_id] = value
        self.tied = TiedKeys(jobs.values())
        return self.tied

    def expire_idempotency(self, seq: int, stubs: Mapping[str, s.Idempotency | None]) -> None:
        """Drops all that is stored under these keys; a stub takes its place where one is given."""
        for change in [c for c in self._changes if c.family is Family.IDEMPOTENCY and c.seq is not None]:
            if change.key.decode() in stubs:
                self._changes.append(Delete(Family.IDEMPOTENCY, change.key, change.seq))
        for key, stub in stubs.items():
            raw = key.encode()
            for version in self._view.history(Family.IDEMPOTENCY, raw):
                self._changes.append(Delete(Family.IDEMPOTENCY, raw, version.seq))
            place = (Family.IDEMPOTENCY, key)
            self._cache.pop(place, None)
            self._cache[place] = (None if stub is None else (seq, stub), self._turn)
            if stub is not None:
                self._changes.append(Put(Family.IDEMPOTENCY, raw, s.encode_state(stub), seq))
