"""Why a waiting job waits, when it is not for a free place only: told from a partition's store."""

from __future__ import annotations

from ..core import state as s
from ..core.times import format_time
from ..ports.store import Family, View


def waits_for(view: View, head: s.JobHead, job: s.JobState) -> str | None:
    """The reason, for people; None for a job that waits for its time and turn only, or does not wait.

    A job whose time has come is delayed or retrying until it starts.
    """
    if job.status not in (s.WAITING, s.DELAYED, s.RETRYING):
        return None
    behind = None if head.resource is None else _behind(view, head.resource, head.accepted_seq)
    held = None if head.resource is None or job.status != s.WAITING else _held(view, head.resource)
    return behind or held or type_waits(view, head.type)


def type_waits(view: View, job_type: str) -> str | None:
    """Why all jobs of a type wait on a partition, if they do."""
    raw = view.get(Family.MARKS, (s.TYPE_NOTE + job_type).encode())
    return None if raw is None else s.decode_note(raw).reason


def _held(view: View, resource: str) -> str | None:
    lent, newest = view.get(Family.LENT, resource.encode()), view.latest(Family.LEASES, resource.encode())
    if lent is not None:
        return f"waits for {resource}, which {s.decode_lent(lent).holder} holds"
    if newest is None:
        return None
    lease = s.decode_lease(newest.value)
    version = view.latest(Family.JOBS, lease.holder.encode())
    holder = None if version is None else s.decode_job(version.value)
    if lease.released or holder is None or (holder.status, holder.attempt) != (s.RUNNING, lease.attempt):
        return None
    return f"waits for {resource}, which {lease.holder} holds"


def _behind(view: View, resource: str, accepted_seq: int) -> str | None:
    raw = view.get(Family.MARKS, (s.BLOCKED_KEY + resource).encode())
    ahead = None if raw is None else s.decode_block(raw).ahead_of(accepted_seq)
    if ahead is None:
        return None
    version = view.latest(Family.JOBS, ahead.encode())
    job = None if version is None else s.decode_job(version.value)
    if job is not None and job.status == s.INVESTIGATION:
        return f"waits behind {ahead} in investigation"
    until = f" until {format_time(job.due)}" if job is not None and job.status == s.RETRYING and job.due else ""
    return f"waits behind {ahead}, which is {'unknown' if job is None else job.status}{until}"
