"""A person's word about an effect in doubt, taken in by the owner of the partition that holds its key."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core.doubt import answer_refusal, decide_resolve
from rewindq.engine.core.global_keys import is_global
from rewindq.engine.ports.blobs import BlobMissing
from rewindq.engine.runtime.deployment import Deployment

from .owner import About, Owner
from .remote import Remote


def resolve(
    deployment: Deployment, owner: Owner, remote: Remote | None, job_id: str, body: e.ResolveCommand
) -> tuple[e.Event, ...]:
    """An effect's outcome on a person's word; on the trace of the job that started the call last.

    Nothing when the command was answered before.
    """
    keys = remote.claims.keys if remote is not None and is_global(body.key) else None
    if keys is not None and keys.resolve(owner, job_id, body, _answer_refusal(deployment, body)):
        return ()
    known = owner.states.idempotency_at(body.key)
    holder = job_id if known is None else known[1].job_id
    if owner.states.commands.of(holder, body.command_id) is not None:
        return ()
    head, job = owner.states.head(holder), owner.states.job(holder)
    events = decide_resolve(known, job, body, _answer_refusal(deployment, body))
    if head is None or job is None:
        owner.append(About(None, 0, job_id.encode()), events)
    else:
        owner.append(About.job(holder, head, job.attempt, owner.partition, job.last_seq), events)
    return events


def _answer_refusal(deployment: Deployment, body: e.ResolveCommand) -> str | None:
    """Why an answer cannot be recorded: checked as an effect's own is, since any producer may have sent it."""
    data, ref = body.answer, body.answer_ref
    if ref is None:
        limit = deployment.settings.body_limit_bytes
        if data is not None and len(data) > limit:
            return f"the answer has {len(data)} bytes, over the limit of {limit}; it belongs in the blob store"
        return None if data is None else answer_refusal(data)
    if deployment.blobs is None:
        return f"the answer {ref} is in a blob store, but this worker has none (--blobs)"
    try:
        return answer_refusal(deployment.blobs.get(ref))
    except BlobMissing as error:
        return str(error)
