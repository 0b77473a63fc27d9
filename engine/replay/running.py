"""Carries a replay's request out, given the app and the past to read from. What it may touch is not decided here."""

from __future__ import annotations

import msgspec

from ..codec.avro import Codec
from ..core import state as s
from ..core.events import EventRecord
from ..core.position import Position
from ..core.secrets import secret_texts
from ..ports.blobs import Blobs
from ..ports.store import View
from ..runtime.app import LoadedApp
from ..runtime.clock import SystemClock
from ..store.working import WorkingSet
from .divergence import Matcher
from .execution import Finished, compare_end, execute
from .fields import unread
from .fork_session import ForkSession
from .recording import Recording
from .session import ReplaySession, Setting
from .wire import Reply, Request
from .world import Past, Place, job_at
from .writer import BranchWriter


async def run(request: Request, loaded: LoadedApp, view: View, blobs: Blobs | None) -> Reply:
    """Replays one attempt. An app without the job's type is a failure, as it is live."""
    codec = Codec()
    records = [codec.decode(data) for data in request.records]
    recording = Recording.of(request.job_id, request.partition, records)
    setting = _setting(request, recording, loaded, view, blobs)
    job_type = loaded.app.types.get(setting.head.type)
    if job_type is None:
        known = ", ".join(sorted(loaded.app.types)) or "none"
        return Reply("failed", reason=f"app {request.app} has no job type {setting.head.type!r} (it has: {known})")
    for path in request.changes:
        ignored = unread(job_type.model, path)
        if ignored is not None:
            return Reply("refused", reason=f"--set {path}: it would change nothing: {ignored}")
    if request.branch is None:
        session = ReplaySession(setting, setting.attempt.steps)
        finished = await execute(session, job_type, request.payload, request.limit)
        compare_end(session, finished, None if blobs is None else blobs.get)
        return _reply(session, finished, [], codec, loaded)
    writer = _writer(request, request.branch, setting, records, loaded)
    fork = ForkSession(setting, writer)
    finished = await execute(fork, job_type, request.payload, request.limit)
    fork.close(finished)
    return _reply(fork, finished, writer.records, codec, loaded)


def _setting(request: Request, recording: Recording, loaded: LoadedApp, view: View, blobs: Blobs | None) -> Setting:
    head = s.decode_head(request.head)
    return Setting(
        job_id=request.job_id,
        head=head,
        attempt=recording.attempt(request.attempt),
        view=view,
        base=request.base,
        place=Place(request.partition, request.partitions),
        app=loaded.app,
        clock=SystemClock(),
        blobs=blobs,
        secrets=secret_texts(request.payload, head.secrets),
        bypass=request.bypass,
    )


def _writer(
    request: Request, branch: str, setting: Setting, records: list[EventRecord], loaded: LoadedApp
) -> BranchWriter:
    job = job_at(setting.view, request.job_id, request.base - 1)
    past = Past(setting.view, request.base - 1, None if job is None else job.status)
    return BranchWriter(
        branch,
        request.job_id,
        setting.head,
        request.attempt,
        Position(request.partition, request.base),
        [record for record in records if record.seq < request.base][-1],
        WorkingSet(past),
        loaded.code_version,
    )


def _reply(
    session: ReplaySession, finished: Finished, records: list[EventRecord], codec: Codec, loaded: LoadedApp
) -> Reply:
    failure, attempt = finished.failure, session.setting.attempt
    outcome = "failed" if failure is not None else "succeeded"
    reason = None if failure is None else failure.reason
    in_fork = isinstance(session, ForkSession)
    # Whatever the handler came to behind the last recorded event, the recording neither confirms nor denies it.
    unconfirmed = not in_fork and not attempt.by_handler and (failure is None or not session.matcher.divergences)
    if finished.ended is not None or unconfirmed:
        outcome = "unfinished"
        reason = finished.ended or attempt.ends_here or f"ends here: the attempt was {attempt.outcome}"
    return Reply(
        outcome,
        None if failure is None else failure.step,
        reason,
        None if failure is None else str(failure.failure_class),
        _divergences(session.matcher),
        (),
        tuple((record.events[0].body.topic, codec.encode(record)) for record in records),
        sum(len(record.events) for record in records),
        loaded.code_version,
    )


def _divergences(matcher: Matcher) -> bytes:
    found = sorted(matcher.divergences, key=lambda one: one.index)
    return msgspec.json.encode([one.shown() for one in found])
