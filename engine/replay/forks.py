"""`fork` and `diff`: an attempt run again in a branch of its own, and set beside the original."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from ..codec.avro import Codec
from ..core import events as e
from ..core import values
from ..core.aggregate import DELETE
from ..core.merge import Fence
from ..core.names import MAIN
from ..core.secrets import MASK
from ..ports.log import Append
from ..ports.store import Family, Put
from ..runtime.commands import command_id_of
from ..runtime.deployment import Deployment
from ..runtime.recover import PartitionTopics, Tail, log_identity
from ..store.newest import COUNTS, POSITIONS, Positions, encode_positions, read_aggregate
from ..store.opener import new_overlay
from . import branches, requested
from .branches import Branch
from .diff import diff, fork_recording
from .parent import Refused, Replayer, changed_payload, replay
from .points import Base, Partition, Wanted, resolve
from .replays import LIMIT, Replayed, check_loaded, make_request, violations_shown
from .source import JobPast, open_job
from .wire import Reply, Request
from .world import job_at
from .writer import EPOCH, branch_worker

_POLL = 500
#: How far before the base in time the source partition's offsets are looked for.
_BEFORE_MS = 10_000


class ForkOptions(NamedTuple):
    """How a fork differs from the original: where it begins, what code, which payload paths. `limit` seconds."""

    wanted: Wanted = Wanted()
    attempt: int | None = None
    changes: Mapping[str, str] = {}
    name: str | None = None
    bypass: bool = False
    limit: float = LIMIT
    parent: str = MAIN
    request_id: str | None = None


def fork(
    deployment: Deployment, job_id: str, app: str, options: ForkOptions, replayer: Replayer | None = None
) -> Replayed:
    """Runs an attempt in a new branch, in `replayer` or a new process.

    With a `request_id` there is one branch of it, however often and by how many it is asked for.
    Raises NoRecording, BadPoint, HalfDone, BranchExists, Refused, AppError.
    """
    if options.parent != MAIN:
        raise Refused(
            f"a fork of branch {options.parent!r} is not supported by this version: fork the job itself, from main"
        )
    with open_job(deployment, job_id) as job:
        base = resolve(job.recording, job.head, options.wanted, options.attempt, _partition(deployment, job))
        request = _request(deployment, job, base, app, options)
        branch = _branch(deployment, job, base, app, options)
        known = requested.find(deployment, branch)
        if known is None:
            try:
                branches.create(deployment, branch, _base_offsets(deployment, job, base.seq))
            except branches.BranchExists:
                known = requested.find(deployment, branch)
                if known is None:
                    raise
        if known is not None:
            return _told(deployment, job, base, requested.ended(deployment, known, options.limit))
        request = msgspec.structs.replace(
            request, branch=branch.name, folder=str(branches.folder(deployment, branch.name))
        )
        reply = replay(request, job.past.store, deployment.blobs, replayer)
        if reply.code_version is None:
            # The handler was not even run: there is nothing to keep.
            branches.delete(deployment, branch.name)
            check_loaded(reply, app)
            return _not_run(branch, base, reply)
        own = [_received(request, record) for record in reply.records]
        _append(deployment, branch, job, own)
        _fold(deployment, branch, job, base)
        branch = branch._replace(ended=_ended(reply), code_version=reply.code_version)
        branches.register(deployment, branch)
        return _shown(job, branch, base, reply, own)


def _partition(deployment: Deployment, job: JobPast) -> Partition:
    past = job.past
    return Partition(past.store, deployment.log, deployment.codec, past.topics, past.next_seq)


def _request(deployment: Deployment, job: JobPast, base: Base, app: str, options: ForkOptions) -> Request:
    request = make_request(deployment, job, base.attempt, "fork", app, base.seq, options.limit)
    payload = changed_payload(request.payload, options.changes) if options.changes else request.payload
    return msgspec.structs.replace(request, payload=payload, bypass=options.bypass, changes=tuple(options.changes))


def _branch(deployment: Deployment, job: JobPast, base: Base, app: str, options: ForkOptions) -> Branch:
    job_id = job.recording.job_id
    request = None
    if options.request_id is not None:
        request = command_id_of(deployment, options.request_id, "fork", job_id)
    name = options.name
    if name is None:
        name = branches.free_name(deployment, job_id) if request is None else requested.name_of(job_id, request)
    topics = deployment.topics
    secrets = job.head.secrets
    changes = {path: MASK if path in secrets else text for path, text in options.changes.items()}
    born = e.BranchCreated(
        parent=MAIN,
        base_partition=base.position.partition,
        base_seq=base.seq,
        mode="fork",
        app=app,
        lifecycle=topics.branch_lifecycle(name),
        domain=topics.branch_domain(name),
        group=topics.branch_group(name),
        changes=values.encode(changes) if changes else None,
        host=socket.gethostname(),
        pid=os.getpid(),
        request=request,
    )
    now = deployment.clock.now_us()
    return Branch(name, job_id, base.attempt.number, None, now, born, None)


def _ended(reply: Reply) -> e.BranchEnded:
    divergences = len(msgspec.json.decode(reply.divergences))
    return e.BranchEnded(reply.outcome, reply.events, divergences, reply.reason)


# --- the branch's topics, group and overlay ---------------------------------------------------------------------


def _base_offsets(deployment: Deployment, job: JobPast, seq: int) -> dict[tuple[str, int], int]:
    """Where the source partition's group stood at the base: the next offset of jobs, lifecycle and domain."""
    topics, number = job.past.topics, job.past.partition
    before = [at for at in job.recording.events if at.seq < seq]
    since = before[-1].record.timestamp // 1000 - _BEFORE_MS
    taken = job.head.source_offset
    jobs = 0 if taken is None else taken + 1
    lifecycle, jobs = _offset_before(deployment, topics.lifecycle, number, seq, since, jobs)
    domain, _ = _offset_before(deployment, topics.domain, number, seq, since, 0)
    return {
        (deployment.topics.jobs, number): jobs,
        (topics.lifecycle, number): lifecycle,
        (topics.domain, number): domain,
    }


def _offset_before(
    deployment: Deployment, topic: str, number: int, seq: int, since_ms: int, jobs: int
) -> tuple[int, int]:
    """The offset of the record with a topic's first event from `seq` on, and the jobs offset taken in before it."""
    place = (topic, number)
    low, end = deployment.log.bounds(*place)
    with closing(deployment.log.reader({place: max(low, deployment.log.offset_at(*place, since_ms))})) as reader:
        while reader.position(*place) < end:
            for record in reader.poll(_POLL, 1.0):
                decoded = deployment.codec.decode(record.value)
                if decoded.seq >= 0 and decoded.next_seq > seq:
                    return record.offset, jobs
                jobs = max([jobs, *(_taken(event) + 1 for event in decoded.events)])
    return end, jobs


def _taken(event: e.Event) -> int:
    offset = getattr(event.body, "source_offset", None)
    return -1 if offset is None else int(offset)


def _received(request: Request, record: tuple[str, bytes]) -> e.EventRecord:
    """A record of the child's, if it is one that a branch may hold."""
    decoded = Codec().decode(record[1])
    if decoded.branch != request.branch or decoded.job_id != request.job_id or decoded.seq < request.base:
        raise Refused(f"the replay sent a record that is not of branch {request.branch!r}: nothing was appended")
    return decoded


def _append(deployment: Deployment, branch: Branch, job: JobPast, own: list[e.EventRecord]) -> None:
    """The branch's fences and events, in one go."""
    by_name = {"lifecycle": branch.born.lifecycle, "domain": branch.born.domain}
    now = branch.created_us
    fence = e.EventRecord(
        e.UNNUMBERED,
        0,
        now,
        EPOCH,
        branch_worker(branch.name),
        None,
        0,
        (e.Event(e.PartitionTaken(branch.born.host, branch.born.pid)),),
        branch=branch.name,
    )
    appends = [Append(topic, 0, None, deployment.codec.encode(fence), now // 1000) for topic in branch.topics]
    for record in own:
        topic = by_name[record.events[0].body.topic]
        value = deployment.codec.encode(record)
        appends.append(Append(topic, 0, job.head.key.encode(), value, record.timestamp // 1000))
    with closing(deployment.log.producer()) as producer:
        producer.append(appends)


def _fold(deployment: Deployment, branch: Branch, job: JobPast, base: Base) -> None:
    """The branch's overlay, from its topics: what a worker's store is to production."""
    path = branches.overlay_path(deployment, branch.name)
    before = job_at(job.past.store, branch.job_id, base.seq - 1)
    counts = {} if before is None else {before.status: 1}
    fences = dict.fromkeys(branch.topics, Fence())
    topics = PartitionTopics(branch.born.lifecycle, branch.born.domain, 0)
    identity = log_identity(deployment.log, topics)
    positions = Positions(offsets={}, seq=base.seq, fences=fences, log_identity=identity)
    with closing(new_overlay(str(path), job.past.store, base.seq - 1)) as overlay:
        overlay.write(
            [
                Put(Family.META, POSITIONS, encode_positions(positions)),
                Put(Family.META, COUNTS, msgspec.msgpack.encode(counts)),
            ]
        )
        Tail(deployment.log, deployment.codec, topics, overlay).catch_up()


# --- showing ----------------------------------------------------------------------------------------------------


def _shown(job: JobPast, branch: Branch, base: Base, reply: Reply, own: list[e.EventRecord]) -> Replayed:
    compared = _compare(job, branch, own)
    shown = _summary(branch, base, reply) | {"diff": compared}
    return Replayed(shown, not compared["same"] or bool(shown["divergences"]), reply.outcome == "blocked")


def _told(deployment: Deployment, job: JobPast, base: Base, branch: Branch) -> Replayed:
    """A fork that was run for the same request: its outcome and what differs, as its branch holds them."""
    assert branch.ended is not None
    own = branches.records(deployment, branch)
    compared = _compare(job, branch, own)
    diverged = [_divergence(event) for record in own for event in record.events]
    found = [one for one in diverged if one is not None]
    shown = {
        "branch": branch.name,
        "base": str(branch.base),
        "outcome": branch.ended.outcome,
        "divergences": found,
        "diff": compared,
        "job_id": branch.job_id,
        "attempt": branch.attempt,
        "failed_step": None,
        "reason": branch.ended.reason,
        "violations": [],
        "code_version": {"recorded": base.attempt.code_version, "ran": branch.code_version},
    }
    return Replayed(shown, not compared["same"] or bool(found), branch.ended.outcome == "blocked")


def _divergence(event: e.Event) -> dict[str, Any] | None:
    """A divergence as the branch recorded it."""
    body = event.body
    if not isinstance(body, e.DivergenceFound):
        return None
    expected, got = (None if data is None else values.decode(data) for data in (body.expected, body.got))
    return {"kind": body.kind, "step": event.step, "occurrence": 1, "expected": expected, "got": got}


def _not_run(branch: Branch, base: Base, reply: Reply) -> Replayed:
    shown = _summary(branch, base, reply) | {"branch": None, "diff": None}
    return Replayed(shown, True, reply.outcome == "blocked")


def _summary(branch: Branch, base: Base, reply: Reply) -> dict[str, Any]:
    return {
        "branch": branch.name,
        "base": str(base.position),
        "outcome": reply.outcome,
        "divergences": msgspec.json.decode(reply.divergences),
        "diff": None,
        "job_id": branch.job_id,
        "attempt": branch.attempt,
        "failed_step": reply.failed_step,
        "reason": reply.reason,
        "violations": violations_shown(reply),
        "code_version": {"recorded": base.attempt.code_version, "ran": reply.code_version},
    }


def _compare(job: JobPast, branch: Branch, own: list[e.EventRecord]) -> dict[str, Any]:
    base = branch.base

    def base_field(key: str, field: str) -> Any:
        return read_aggregate(job.past.store, key, base.seq - 1).data.get(field, DELETE)

    forked = fork_recording(job.recording, base, own)
    return diff(job.recording, forked, branch.attempt, base_field)


def diff_branch(deployment: Deployment, job_id: str, name: str) -> Replayed:
    """The original beside a branch. Raises NoBranch, NoRecording, Refused when the branch is of another job."""
    branch = branches.find_branch(deployment, name)
    if branch.job_id != job_id:
        raise Refused(f"branch {name!r} is a fork of job {branch.job_id}, not of {job_id}")
    if branch.ended is None:
        raise Refused(f"branch {name!r} is {branch.status}: its run did not end; delete it and fork again")
    with open_job(deployment, job_id) as job:
        compared = _compare(job, branch, branches.records(deployment, branch))
    return Replayed(compared, not compared["same"], False)
