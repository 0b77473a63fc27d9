"""Expiry of what is known under effects' keys: what may be dropped, and what stays of it. Pure.

A dropped success leaves a stub: who asks under its key again is in doubt, since "missing" must never read as "never
done". A call that was surely not done leaves nothing: there a call is what a missing record means, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import events as e
from . import state as s
from .compensate import SUFFIX, Lookup, is_compensated
from .evolve import FoldError, Moment

#: How keys begin that partitions share; others begin with a partition key, which is never empty (`global_keys.py`).
SHARED = "/"
#: How the reason of a doubt begins that a stub gave.
DROPPED = "its answer was dropped (keep_keys): "


class Candidate(NamedTuple):
    """A key with what is known under it, and the job that called last. `tied`: a job that is not over relies on it."""

    key: str
    record: s.Idempotency
    holder: s.JobState | None
    tied: bool


def may_expire(one: Candidate, lookup: Lookup, cutoff: int) -> bool:
    """Whether a key may be dropped: its outcome is known, and its job ended at `cutoff` (microseconds) or before.

    What was compensated stays: it says under which key the effect is called next. So does what partitions share
    (`global_key=`): nobody knows which jobs elsewhere rely on it.
    """
    record, holder = one.record, one.holder
    if one.key.startswith(SHARED):
        return False
    if record.status not in (s.DONE, s.FAILED) or one.tied:
        return False
    if holder is None or holder.status not in s.TERMINAL or holder.finished_at is None:
        return False
    if max(holder.finished_at, record.changed_at) > cutoff:
        return False
    return not one.key.endswith(SUFFIX) and not is_compensated(one.key, record, lookup)


def decide_expiry(found: Iterable[Candidate], lookup: Lookup, cutoff: int) -> tuple[e.Event, ...]:
    """The event that drops those that may be dropped; none where there are none."""
    keys = tuple(one.key for one in found if may_expire(one, lookup, cutoff))
    return (e.Event(e.KeysExpired(cutoff, keys)),) if keys else ()


def evolve_expired(key: str, record: s.Idempotency | None, at: Moment) -> s.Idempotency | None:
    """What stays of a dropped key. Raises FoldError where its outcome is not known."""
    if record is None or record.status not in (s.DONE, s.FAILED):
        known = "nothing" if record is None else record.status
        raise FoldError(f"key {key!r} is dropped at seq {at.seq}, and what is known of it is {known}")
    if record.status == s.FAILED:
        return None
    digest, holder = record.request_digest, record.job_id
    return s.Idempotency(s.EXPIRED, digest, holder, record.attempt, record.step, changed_at=at.timestamp)


def expired_reason(record: s.Idempotency) -> str:
    """What is told of a stub to who asks under its key."""
    return f"{DROPPED}job {record.job_id} made this call, and `rewindq trace {record.job_id}` may still show it"
