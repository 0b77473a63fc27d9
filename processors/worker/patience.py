"""What waits for its type's rate or for a capable worker: told to readers, and parked when it has waited too long."""

from __future__ import annotations

from collections.abc import Iterable

from rewindq.engine.core.retry import FailureClass

from .attempts import Attempts
from .intake import Intake
from .owner import About, Owner
from .unknown import note


def see_waiting(attempts: Attempts, intake: Intake, owners: Iterable[Owner]) -> None:
    """Notes why types wait, where they do, and ends the waits that were too long."""
    rates = attempts.limits.rates
    if not rates and not intake.unknown:
        return
    for owner in owners:
        for name in rates.waiting(owner.partition, attempts.queues[owner.partition]):
            note(owner, name, rates.reason(name))
        _see_unknown(attempts, intake, owner)


def _see_unknown(attempts: Attempts, intake: Intake, owner: Owner) -> None:
    deployment, unknown = attempts.deployment, intake.unknown
    wait = deployment.settings.unknown_type_wait
    for late in unknown.overdue(owner, deployment.clock.monotonic(), wait):
        reason = (
            f"unknown job type {late.type!r}: no worker that knows it came within {wait:g} s; "
            f"this worker's app has: {unknown.known()}"
        )
        if not unknown.holds(owner.partition, late.job_id):
            _park(attempts, owner, late.job_id, reason)
        elif intake.held_for_later(owner, late.job_id):
            unknown.found(owner.partition, late.job_id, late.type)
        else:
            intake.end_hold(owner, late.job_id, reason, (FailureClass.VALIDATION, reason))


def _park(attempts: Attempts, owner: Owner, job_id: str, reason: str) -> None:
    job, head = owner.states.job(job_id), owner.states.head(job_id)
    queue = attempts.queues[owner.partition]
    if job is None or head is None or not queue.is_unknown(job_id):
        return
    queue.remove(job_id)
    about = About.job(job_id, head, job.attempt, owner.partition, job.last_seq)
    attempts.park(owner, about, FailureClass.VALIDATION, reason)
