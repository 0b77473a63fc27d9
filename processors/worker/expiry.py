"""Drops what is known under effects' keys when its time is over (`keep_keys`): a little at a time, as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from rewindq.engine.core import state as s
from rewindq.engine.core.expiry import Candidate, decide_expiry
from rewindq.engine.ports.store import Family

from .attempts import Attempts
from .owner import About, Owner

#: Keys looked at in one go, and seconds between two goes: some milliseconds of work a second and partition.
LOOK_MAX = 200
LOOK_EVERY = 0.1
#: A sweep over all keys begins every twentieth of the time that they are kept, within these bounds, in seconds.
SWEEP_MIN, SWEEP_MAX = 0.5, 3600.0
_ABOUT = About(None, 0, b"keys")


class _Sweep:
    """One owned partition: how far its keys are looked through, and when to go on (monotonic seconds)."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.next = 0.0
        self.keys: Iterator[bytes] = iter(())


class Expiry:
    """The policy of a worker. Used from its event loop only."""

    def __init__(self, attempts: Attempts) -> None:
        keep = attempts.deployment.settings.keep_keys
        self._attempts = attempts
        self._clock = attempts.deployment.clock
        self._keep = None if keep is None else int(keep * 1_000_000)
        self._pause = 0.0 if keep is None else min(max(keep / 20, SWEEP_MIN), SWEEP_MAX)
        self._sweeps: dict[int, _Sweep] = {}

    def look(self, owners: Mapping[int, Owner]) -> None:
        """Goes on looking for what is to be dropped, where it is time to."""
        if self._keep is None:
            return
        if self._sweeps.keys() - owners.keys():
            self._sweeps = {partition: sweep for partition, sweep in self._sweeps.items() if partition in owners}
        # Jobs' ends are wall times. A wall that is set ahead here must not make them long ago.
        deployment = self._attempts.deployment
        now, cutoff = self._clock.monotonic(), min(self._clock.now_us(), deployment.time.now_us()) - self._keep
        for partition, owner in owners.items():
            sweep = self._sweeps.get(partition)
            if sweep is None or sweep.owner is not owner:
                sweep = self._sweeps[partition] = _Sweep(owner)
                sweep.keys = owner.store.keys(Family.IDEMPOTENCY)
            if sweep.next <= now:
                self._go_on(sweep, now, cutoff)

    def _go_on(self, sweep: _Sweep, now: float, cutoff: int) -> None:
        owner = sweep.owner
        keys = list(islice(sweep.keys, LOOK_MAX))
        old = [raw.decode() for raw in keys if _is_old(owner, raw, cutoff)]
        if old:
            self._drop(owner, old, cutoff)
        sweep.next = now + LOOK_EVERY
        if len(keys) < LOOK_MAX:
            sweep.keys = owner.store.keys(Family.IDEMPOTENCY)
            sweep.next = now + self._pause

    def _drop(self, owner: Owner, keys: list[str], cutoff: int) -> None:
        # A handler may have been given an answer that no event tells of yet: then its job relies on the key, too.
        for run in self._attempts.running.values():
            if run.owner is owner and not run.closed:
                run.flush()
        states = owner.states
        tied = states.tied if states.tied is not None else states.tie_keys()
        found = []
        for key in keys:
            record = states.idempotency(key)
            if record is not None:
                found.append(Candidate(key, record, states.job(record.job_id), key in tied))
        owner.append(_ABOUT, decide_expiry(found, states.idempotency_at, cutoff))


def _is_old(owner: Owner, raw: bytes, cutoff: int) -> bool:
    """A first look, past the working set: it keeps what is in use, and most keys are too young."""
    version = owner.store.latest(Family.IDEMPOTENCY, raw)
    if version is None:
        return False
    record = s.decode_idempotency(version.value)
    return record.status in (s.DONE, s.FAILED) and record.changed_at <= cutoff
