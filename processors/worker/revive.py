"""What a new owner does with what its partition's former one has left: attempts that are lost, jobs that wait."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.blocking import with_block
from rewindq.engine.core.decide import decide_lost, doubts
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.app import App

from .attempts import Attempts
from .compensating import undo_in
from .intake import Intake
from .owner import About, Owner, Taken
from .unknown import note

log = structlog.get_logger(__name__)

_HELD, _NOTES = s.HELD.encode(), s.TYPE_NOTE.encode()
#: Losses after which a job is poison, where its type is not known.
MAX_LOST = 3


def revive(owner: Owner, app: App, attempts: Attempts, intake: Intake) -> None:
    """Decides what became of lost attempts and puts all waiting jobs into the partition's queue."""
    queue = attempts.queues[owner.partition]
    prefix = s.BLOCKED_KEY.encode()
    for raw, value in owner.store.scan(Family.MARKS, prefix):
        queue.block(raw.removeprefix(prefix).decode(), s.decode_block(value).jobs[0][0])
    running = [raw.decode() for raw, value in owner.store.scan(Family.RUNNING) if s.decode_open(value).running]
    lost = [about for job_id in running if (about := _lost(owner, job_id, app, attempts, intake)) is not None]
    if lost:
        attempts.remote.tell_owned(owner, lost[0])
    for _, raw in owner.store.scan(Family.READY):
        job_id = raw.decode()
        job = owner.states.job(job_id)
        if job is not None and job.status == s.WAITING:
            attempts.requeue(owner, job_id)


def _lost(owner: Owner, job_id: str, app: App, attempts: Attempts, intake: Intake) -> About | None:
    """Decides what became of an attempt that was running; whom it was about, None where none was."""
    job, head = owner.states.job(job_id), owner.states.head(job_id)
    if job is None or head is None or job.status != s.RUNNING:
        return None
    job_type = app.types.get(head.type)
    about = About.job(job_id, head, job.attempt, owner.partition, job.last_seq)
    reason = f"its worker {job.worker} no longer owns partition {owner.partition}"
    max_lost = job_type.max_lost if job_type is not None else MAX_LOST
    events = decide_lost(job, max_lost, reason, undo_in(owner, job_id))
    events = with_block(events, job, head.resource, job_type is not None and job_type.blocks_key)
    doubted = doubts(owner.states.open_effects(job_id), "its worker was lost in the call")
    attempts.remote.claims.end(owner, about, doubted)
    owner.append(about, (*doubted, *events))
    if isinstance(events[-1].body, e.MovedToInvestigation):
        intake.investigate(owner, about, events[-1])
    else:
        attempts.requeue(owner, job_id)
    attempts.limits.see_block(owner, head.resource)
    return about


def release_held(owner: Owner, app: App, intake: Intake) -> Iterator[Taken]:
    """Takes in what was held for want of a handler and has one now, oldest first; the rest is held on."""
    unknown = intake.unknown
    for raw, _ in list(owner.store.scan(Family.MARKS, _NOTES)):
        if raw.removeprefix(_NOTES).decode() in app.types:
            note(owner, raw.removeprefix(_NOTES).decode(), None)
    found = [
        (held.held_seq, raw.removeprefix(_HELD).decode(), held.type)
        for raw, value in owner.store.scan(Family.MARKS, _HELD)
        for held in [s.decode_held(value)]
    ]
    for _, job_id, job_type in sorted(found):
        if job_type not in app.types:
            unknown.held(owner.partition, job_id, job_type)
            continue
        try:
            yield intake.release(owner, job_id, f"a worker that knows {job_type!r} has taken the partition over")
        except UndecodableRecord as error:
            unknown.held(owner.partition, job_id, job_type)
            log.warning("a held submission cannot be read; it is held on", job=job_id, reason=str(error))
