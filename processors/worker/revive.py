"""What a new owner does with what its partition's former one has left: attempts that are lost, jobs that wait."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.decide import decide_lost, doubts, with_block
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.app import App

from .attempts import Attempts
from .intake import Intake
from .owner import About, Owner

#: Losses after which a job is poison, where its type is not known.
MAX_LOST = 3


def revive(owner: Owner, app: App, attempts: Attempts, intake: Intake) -> None:
    """Decides what became of lost attempts and puts all waiting jobs into the partition's queue."""
    queue = attempts.queues[owner.partition]
    prefix = s.BLOCKED_KEY.encode()
    for raw, value in owner.store.scan(Family.MARKS, prefix):
        queue.block(raw.removeprefix(prefix).decode(), s.decode_block(value).jobs[0][0])
    for raw, value in list(owner.store.scan(Family.RUNNING)):
        if s.decode_open(value).running:
            _lost(owner, raw.decode(), app, attempts, intake)
    for _, raw in owner.store.scan(Family.READY):
        job_id = raw.decode()
        job = owner.states.job(job_id)
        if job is not None and job.status == s.WAITING:
            attempts.requeue(owner, job_id)


def _lost(owner: Owner, job_id: str, app: App, attempts: Attempts, intake: Intake) -> None:
    job, head = owner.states.job(job_id), owner.states.head(job_id)
    if job is None or head is None or job.status != s.RUNNING:
        return
    job_type = app.types.get(head.type)
    about = About.job(job_id, head, job.attempt, owner.partition, job.last_seq)
    reason = f"its worker {job.worker} no longer owns partition {owner.partition}"
    events = decide_lost(job, job_type.max_lost if job_type is not None else MAX_LOST, reason)
    events = with_block(events, job, head.resource, job_type is not None and job_type.blocks_key)
    owner.append(about, (*doubts(owner.states.open_effects(job_id), "its worker was lost in the call"), *events))
    if isinstance(events[-1].body, e.MovedToInvestigation):
        intake.investigate(owner, about, events[-1])
        attempts.see_block(owner, head.resource)
    else:
        attempts.requeue(owner, job_id)
