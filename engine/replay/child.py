"""The process in which a replay runs: `python -m rewindq.engine.replay.child FD SOCKET`.

The request comes on stdin, answers go to FD; over SOCKET, a Unix one, the parent is given to watch what the kernel
holds back. The app is imported and its handler runs under the guard. What a replay
needs of the past is asked of the parent, and what it comes to, a fork's events included, is sent there: this process
opens no log, no store and no connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from ..runtime.app import load_app
from .guard import Guard
from .kernel import close_kernel
from .running import run
from .unheard import close_unheard
from .wire import Broken, Pipe, RemoteBlobs, RemoteView, Reply, Request

#: The exit status of a process that cannot reach its parent: user code has closed the pipe, or the parent is gone.
PIPE_LOST = 113


def main() -> None:
    """Serves one request from stdin."""
    serve(os.dup(0), int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))


def serve(requests: int, answers: int, calls: socket.socket) -> NoReturn:
    """Serves one request, over two file descriptors, and ends the process. `calls` is for `kernel.close_kernel`."""
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
    guard = Guard(folder, lambda found: pipe.send("violation", found), pipe.descriptors)
    # Made before the guard is armed: an event loop wakes itself through sockets.
    loop = asyncio.new_event_loop()
    close_kernel(calls, has_folder=folder is not None)
    calls.close()
    close_unheard(guard)
    guard.arm()
    try:
        reply = _replay(request, pipe, loop)
        guard.disarm()
        pipe.send("reply", reply)
        status = 0
    except Broken:
        guard.disarm()
        status = PIPE_LOST
    sys.stderr.flush()
    # Threads that user code left behind must not keep this process.
    os._exit(status)


def _give_empty_stdin() -> None:
    """User code reads nothing from the parent's frames, and what it prints goes to stderr."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)


def _replay(request: Request, pipe: Pipe, loop: asyncio.AbstractEventLoop) -> Reply:
    try:
        loaded = load_app(request.app)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing the app runs its code: whatever it raises
        return Reply("unloadable", reason=f"{type(error).__name__}: {error}")
    blobs = RemoteBlobs(pipe) if request.has_blobs else None
    return loop.run_until_complete(run(request, loaded, RemoteView(pipe), blobs))


if __name__ == "__main__":
    main()
