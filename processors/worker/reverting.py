"""Carrying out a revert of what a job changed in one aggregate: at the aggregate's home, in log order."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.revert import Scope, decide_revert, plan_revert
from rewindq.engine.store.written import written_since

from .owner import About, Owner


def take_revert(owner: Owner, partitions: int, record: e.EventRecord, command: e.RevertCommand) -> tuple[e.Event, ...]:
    """Decides the command of a record: what it brings back is the aggregate's next version.

    Nobody who holds the aggregate's lease is waited for: a write of theirs on the version before is refused as always.
    """
    job_id, key = record.job_id or "", record.events[0].resource or ""
    home = partition_for(key.encode(), partitions)
    if not key or home != owner.partition:
        reason = f"{key} is at home on partition {home}" if key else "it names no aggregate"
        refused = e.Event(e.CommandRefused("revert", command.command_id, reason), status="fail")
        owner.append(About(None, 0, job_id.encode()), (refused,))
        return (refused,)
    owner.heard(record.lamport)
    states, place = owner.states, f"p{owner.partition}"
    written = written_since(owner.store, states.fresh, job_id, key)
    plan = plan_revert(written.before, written.versions, Scope(job_id, command.attempt))
    current = states.aggregate(key).version
    known = states.reverts.of(job_id, key)
    events = decide_revert(key, (job_id, states.job(job_id)), known, command, current, plan, place)
    cause = None if plan.last_seq is None else f"{place}@{plan.last_seq}"
    about = About(job_id, command.attempt or 0, key.encode(), None, record.trace_id, record.correlation_id, cause)
    for event in events:
        # Each in a record of its own: together they might be larger than the log takes.
        owner.append(about, (event,))
    return events
