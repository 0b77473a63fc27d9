"""The process in which a replay runs: `python -m rewindq.engine.replay.child FD`.

The request comes on stdin, answers go to FD. The app is imported and its handler runs under the guard. What a replay
needs of the past is asked of the parent, and what it comes to, a fork's events included, is sent there: this process
opens no log, no store and no connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from ..runtime.app import load_app
from .guard import Guard
from .kernel import close_kernel
from .running import run
from .wire import Broken, Pipe, RemoteBlobs, RemoteView, Reply, Request


def main() -> None:
    """Serves one request from stdin."""
    serve(os.dup(0), int(sys.argv[1]))


def serve(requests: int, answers: int) -> NoReturn:
    """Serves one request, over two file descriptors, and ends the process."""
    # An interrupt at the terminal is the parent's, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(requests, answers)
    _give_empty_stdin()
    os.set_inheritable(answers, False)
    try:
        _, value = pipe.receive()
    except Broken:
        os._exit(0)  # nobody wants a replay any more
    request = msgspec.convert(value, Request)
    folder = None if request.folder is None else Path(request.folder)
    guard = Guard(folder, lambda found: pipe.send("violation", found))
    # Made before the guard is armed: an event loop wakes itself through sockets.
    loop = asyncio.new_event_loop()
    close_kernel()
    guard.arm()
    reply = _replay(request, pipe, guard, loop)
    guard.disarm()
    pipe.send("reply", _named(reply, guard))
    sys.stderr.flush()
    # Threads that user code left behind must not keep this process.
    os._exit(0)


def _give_empty_stdin() -> None:
    """User code reads nothing from the parent's frames, and what it prints goes to stderr."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)


def _replay(request: Request, pipe: Pipe, guard: Guard, loop: asyncio.AbstractEventLoop) -> Reply:
    try:
        loaded = load_app(request.app)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing the app runs its code: whatever it raises
        return Reply("unloadable", reason=f"{type(error).__name__}: {error}")
    blobs = RemoteBlobs(pipe) if request.has_blobs else None
    return loop.run_until_complete(run(request, loaded, RemoteView(pipe), blobs))


def _named(reply: Reply, guard: Guard) -> Reply:
    """The reply with what the guard refused, which counts even where the handler swallowed it."""
    if not guard.violations:
        return reply
    return msgspec.structs.replace(
        reply,
        outcome="blocked",
        reason=f"the code went around ctx: {guard.violations[0]}",
        violations=tuple((one.event, one.argument, one.place) for one in guard.violations),
    )


if __name__ == "__main__":
    main()
