"""The process in which a replay runs: `python -m rewindq.engine.replay.child FD`, the request on stdin, answers on FD.

It imports the app and runs the handler under the guard. What it needs of the past it asks its parent for; what it comes
to, a fork's events included, it sends there. It opens no log, no store and no connection.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..codec.avro import Codec
from ..core import state as s
from ..core.events import EventRecord
from ..core.position import Position
from ..core.secrets import secret_texts
from ..runtime.app import LoadedApp, load_app
from ..runtime.clock import SystemClock
from ..store.working import WorkingSet
from .divergence import Matcher
from .execution import Finished, compare_end, execute
from .fork_session import ForkSession
from .guard import Guard
from .recording import Recording
from .session import ReplaySession, Setting
from .wire import Pipe, RemoteBlobs, RemoteView, Reply, Request
from .world import Past, Place, job_at
from .writer import BranchWriter


class _Run(NamedTuple):
    session: ReplaySession
    finished: Finished
    writer: BranchWriter | None


def main() -> None:
    """Serves one request and ends."""
    pipe = _private_pipe(int(sys.argv[1]))
    kind, value = pipe.receive()
    assert kind == "replay"
    request = msgspec.convert(value, Request)
    guard = Guard(None if request.folder is None else Path(request.folder), lambda found: pipe.send("violation", found))
    loop = asyncio.new_event_loop()
    codec = Codec()
    asyncio.set_event_loop(loop)
    guard.arm()
    reply = _replay(request, pipe, guard, codec, loop)
    guard.disarm()
    pipe.send("reply", reply)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that user code left behind must not keep this process.
    os._exit(0)


def _private_pipe(answers: int) -> Pipe:
    """Takes stdin for the parent's frames, and gives user code an empty stdin and stderr for its prints."""
    frames = os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    os.set_inheritable(answers, False)
    return Pipe.of(frames, answers)


def _replay(request: Request, pipe: Pipe, guard: Guard, codec: Codec, loop: asyncio.AbstractEventLoop) -> Reply:
    try:
        loaded = load_app(request.app)
    except Exception as error:  # noqa: BLE001 - importing the app runs its code: whatever it raises is an outcome
        return _not_loaded(guard, error)
    records = [codec.decode(data) for data in request.records]
    recording = Recording.of(request.job_id, request.partition, records)
    setting = _setting(request, pipe, recording, loaded)
    if setting.head.type not in loaded.app.types:
        known = ", ".join(sorted(loaded.app.types)) or "none"
        return Reply("failed", reason=f"app {request.app} has no job type {setting.head.type!r} (it has: {known})")
    run = loop.run_until_complete(_run(request, setting, recording, loaded, records))
    return _reply(run, guard, codec, loaded)


def _not_loaded(guard: Guard, error: Exception) -> Reply:
    outcome = "blocked" if guard.violations else "failed"
    return Reply(outcome, reason=str(error), failure_class="validation", violations=_violations(guard))


def _setting(request: Request, pipe: Pipe, recording: Recording, loaded: LoadedApp) -> Setting:
    head = s.decode_head(request.head)
    return Setting(
        job_id=request.job_id,
        head=head,
        attempt=recording.attempt(request.attempt),
        view=RemoteView(pipe),
        base=request.base,
        place=Place(request.partition, request.partitions),
        app=loaded.app,
        clock=SystemClock(),
        blobs=RemoteBlobs(pipe) if request.has_blobs else None,
        secrets=secret_texts(request.payload, head.secrets),
        bypass=request.bypass,
    )


async def _run(
    request: Request, setting: Setting, recording: Recording, loaded: LoadedApp, records: list[EventRecord]
) -> _Run:
    job_type = loaded.app.types[setting.head.type]
    session: ReplaySession
    writer = None
    if request.branch is None:
        session = ReplaySession(setting, setting.attempt.steps)
    else:
        writer = _writer(request, request.branch, setting, records, loaded)
        session = ForkSession(setting, writer)
    finished = await execute(session, job_type, request.payload, request.limit)
    if isinstance(session, ForkSession):
        session.close(finished)
    else:
        blobs = setting.blobs
        compare_end(session, finished, None if blobs is None else blobs.get)
    return _Run(session, finished, writer)


def _writer(
    request: Request, branch: str, setting: Setting, records: list[EventRecord], loaded: LoadedApp
) -> BranchWriter:
    job = job_at(setting.view, request.job_id, request.base - 1)
    before = [record for record in records if record.seq < request.base]
    past = Past(setting.view, request.base - 1, None if job is None else job.status)
    return BranchWriter(
        branch,
        request.job_id,
        setting.head,
        request.attempt,
        Position(request.partition, request.base),
        before[-1],
        WorkingSet(past),
        loaded.code_version,
    )


def _reply(run: _Run, guard: Guard, codec: Codec, loaded: LoadedApp) -> Reply:
    finished, attempt = run.finished, run.session.setting.attempt
    failure = finished.failure
    outcome = "failed" if failure is not None else "succeeded"
    reason = None if failure is None else failure.reason
    if finished.ended is not None or (run.writer is None and not attempt.by_handler and failure is None):
        outcome = "unfinished"
        reason = finished.ended or attempt.ends_here or f"ends here: the attempt was {attempt.outcome}"
    if guard.violations:
        outcome, reason = "blocked", f"the handler went around ctx: {guard.violations[0]}"
    records = [] if run.writer is None else run.writer.records
    return Reply(
        outcome,
        None if failure is None else failure.step,
        reason,
        None if failure is None else str(failure.failure_class),
        _divergences(run.session.matcher),
        _violations(guard),
        tuple((record.events[0].body.topic, codec.encode(record)) for record in records),
        sum(len(record.events) for record in records),
        loaded.code_version,
    )


def _divergences(matcher: Matcher) -> bytes:
    found = sorted(matcher.divergences, key=lambda one: one.index)
    return msgspec.json.encode([one.shown() for one in found])


def _violations(guard: Guard) -> tuple[tuple[str, str, str], ...]:
    return tuple((found.event, found.argument, found.place) for found in guard.violations)


if __name__ == "__main__":
    main()
