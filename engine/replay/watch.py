"""The parent's side of the kernel's filter: looks at each held call of a replay, refuses and names it or lets it be.

A call into the replay's own folder, `/dev/null`, an unnamed descriptor or a semaphore's file goes on. This is a guard
against code that does not know better: a program that changes its arguments while they are read gets past it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from fcntl import ioctl
from pathlib import Path

from .calls import Call, Place, this_machine
from .guard import Violation, reaches_out

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_HELD = struct.Struct("=QIIiIQ6Q")  # id, thread, flags, call, architecture, where, six arguments
_REPLY = struct.Struct("=Qqii")  # id, value, error, flags
_GO_ON = 1
_HERE = -100  # AT_FDCWD
_PATH_MAX = 4096
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Nobody knows which line of which code made the call.
PLACE = "native code"


class Watch:
    """Held calls of one replaying process. `channel` brings the descriptor from which they are read."""

    def __init__(self, channel: socket.socket, folder: str | None) -> None:
        self._channel: socket.socket | None = channel
        self._listener: int | None = None
        self._folder = None if folder is None else os.path.realpath(folder) + os.sep
        machine = this_machine()
        self._calls = {} if machine is None else machine.by_number()

    @property
    def descriptor(self) -> int | None:
        """What becomes readable when there is something to look at, None when nothing will come."""
        return self._channel.fileno() if self._channel is not None else self._listener

    def look(self) -> Violation | None:
        """Takes what has come: the descriptor, or one held call, which is answered. The violation it was."""
        if self._channel is not None:
            self._open(self._channel)
            return None
        assert self._listener is not None
        held = bytearray(_HELD.size)
        try:
            ioctl(self._listener, _RECEIVE, held)
        except OSError as error:
            # ENOENT: the thread was ended or interrupted meanwhile; anything else: nobody is left to be watched.
            if error.errno not in (errno.ENOENT, errno.EINTR):
                self.close()
            return None
        identity, thread, _, number, _, _, *arguments = _HELD.unpack(held)
        violation = self._judge(thread, self._calls[number], arguments)
        self._answer(identity, violation is None)
        return violation

    def _open(self, channel: socket.socket) -> None:
        _, descriptors, _, _ = socket.recv_fds(channel, 16, 1)
        channel.close()
        self._channel = None
        self._listener = descriptors[0] if descriptors else None

    def _answer(self, identity: int, allowed: bool) -> None:
        assert self._listener is not None
        reply = _REPLY.pack(identity, 0, 0, _GO_ON) if allowed else _REPLY.pack(identity, 0, -errno.EPERM, 0)
        try:
            ioctl(self._listener, _ANSWER, reply)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _judge(self, thread: int, call: Call, arguments: list[int]) -> Violation | None:
        if call.name in ("tkill", "tgkill"):
            own = Path(f"/proc/{thread}/task/{arguments[0]}").exists()
            return None if own else Violation(call.name, f"of process {arguments[0]}", PLACE)
        if not call.places:
            return Violation(call.name, _target(thread, call, arguments), PLACE)
        if call.name == "openat2" and not _how_to_open(thread, arguments[2]) & _WRITES:
            return None
        for place in call.places:
            path = _path(thread, place, arguments)
            if path is None or reaches_out(path, self._folder):
                return Violation(call.name, path or "a file whose path cannot be read", PLACE)
        return None

    def close(self) -> None:
        """Watches no more; what is held from now on fails."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._listener is not None:
            os.close(self._listener)
            self._listener = None


def _path(thread: int, place: Place, arguments: list[int]) -> str | None:
    """The path that a call is about, None when the process's memory cannot be read."""
    at, path = place
    descriptor = _HERE if at is None else _signed(arguments[at])
    if path is None or arguments[path] == 0:
        return _link(thread, f"fd/{descriptor}")
    text = _text(thread, arguments[path])
    if text is None:
        return None
    if not text and descriptor != _HERE:  # AT_EMPTY_PATH
        return _link(thread, f"fd/{descriptor}")
    if text.startswith("/"):
        return text
    folder = _link(thread, "cwd" if descriptor == _HERE else f"fd/{descriptor}")
    return None if folder is None else f"{folder}/{text}"


def _link(thread: int, name: str) -> str | None:
    try:
        return str(Path(f"/proc/{thread}/{name}").readlink())
    except OSError:
        return None


def _text(thread: int, address: int) -> str | None:
    data = _memory(thread, address, _PATH_MAX)
    return None if data is None or b"\0" not in data else os.fsdecode(data.partition(b"\0")[0])


def _memory(thread: int, address: int, size: int) -> bytes | None:
    try:
        with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)
    except (OSError, OverflowError, ValueError):
        return None


def _how_to_open(thread: int, address: int) -> int:
    """The flags of an `openat2`; taken for writing when they cannot be read."""
    data = _memory(thread, address, 8)
    return _WRITES if data is None or len(data) < 8 else int(struct.unpack("=Q", data)[0])


def _target(thread: int, call: Call, arguments: list[int]) -> str:
    """Whom a call was to reach, as far as one can tell."""
    where = {"connect": (1, 2), "bind": (1, 2), "sendto": (4, 5)}.get(call.name)
    if where is not None:
        return _address(_memory(thread, arguments[where[0]], min(arguments[where[1]], 128)))
    if call.name in ("execve", "execveat"):
        return _text(thread, arguments[0 if call.name == "execve" else 1]) or "a program"
    return f"({', '.join(map(str, map(_signed, arguments[:3])))})"


def _address(data: bytes | None) -> str:
    if data is None or len(data) < 8:
        return "an address"
    family = struct.unpack("=H", data[:2])[0]
    if family == socket.AF_INET:
        return f"{socket.inet_ntoa(data[4:8])}:{int.from_bytes(data[2:4], 'big')}"
    if family == socket.AF_INET6 and len(data) >= 24:
        return f"[{socket.inet_ntop(socket.AF_INET6, data[8:24])}]:{int.from_bytes(data[2:4], 'big')}"
    if family == socket.AF_UNIX:
        return os.fsdecode(data[2:].partition(b"\0")[0]) or "an abstract Unix socket"
    return f"an address of family {family}"


def _signed(value: int) -> int:
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low & 0x80000000 else low
