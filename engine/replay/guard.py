"""The interpreter-level guard: while armed, this process opens no connection, starts no program, writes no file.

It listens to CPython's audit events, so it sees whatever goes through the interpreter, however deep in a library; what
raises no such event is closed by name (`unheard.py`). What native code does by itself is left to the kernel
(`kernel.py`). A refused call raises `OutsideWorld` where it was made and is kept by name, so that code which swallows
the exception is named all the same.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files that hold nothing, and those of memory and semaphores that have no name for anybody else.
_SINKS = frozenset({os.devnull})
_UNNAMED = ("/memfd:", "/dev/shm/sem.")  # noqa: S108 - nothing is made there
#: How the pipe to the parent is named in a violation.
OWN_PIPE = "the replay's own pipe"
#: Longest shown argument.
_SHOWN_MAX = 200


class OutsideWorld(PermissionError):
    """A replay touched the outside world behind `ctx`'s back; names what and where."""


class Violation(NamedTuple):
    """A refused call: the audit event, what it was about, and the innermost line of the app's own code."""

    event: str
    argument: str
    place: str

    def __str__(self) -> str:
        return f"{self.event} {self.argument} at {self.place}"


class Guard:
    """Armed once for the rest of the process; `folder` is the only place where files may be written.

    `tell` is called with each violation at once, so that one is known even if the process dies of it. `pipes` are the
    descriptors by which this process talks to its parent: user code may not use them.
    """

    def __init__(
        self,
        folder: Path | None = None,
        tell: Callable[[Violation], None] | None = None,
        pipes: frozenset[int] = frozenset(),
    ) -> None:
        self.violations: list[Violation] = []
        self.pipes = pipes
        self._folder = None if folder is None else os.path.realpath(folder) + os.sep
        self._tell = tell
        self._armed = False
        self._inside = threading.local()

    def arm(self) -> None:
        """From now on, refuses. An audit hook cannot be removed, so neither can this."""
        self._armed = True
        # Compiled modules of the app may not be written beside it, which is no fault of the app.
        sys.dont_write_bytecode = True
        sys.addaudithook(self._hear)

    @property
    def armed(self) -> bool:
        """Whether it refuses now."""
        return self._armed

    def disarm(self) -> None:
        """The user's code is over: what the process does now is its own end."""
        self._armed = False

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        rule = _RULES.get(event)
        if rule is None or not self._armed or getattr(self._inside, "hook", False):
            return
        self._inside.hook = True
        try:
            argument = rule(self, args)
            if argument is not None:
                self.refuse(event, argument)
        finally:
            self._inside.hook = False

    def refuse(self, event: str, argument: str) -> None:
        """Keeps the violation and raises it. Raises OutsideWorld."""
        violation = Violation(event, argument[:_SHOWN_MAX], _user_line())
        self.violations.append(violation)
        if self._tell is not None:
            self._tell(violation)
        raise OutsideWorld(f"a replay may not touch the outside world: {violation}; do it through ctx.effect")

    def outside(self, path: Any) -> str | None:
        """The path as text when it lies outside of the folder that may be written, None when it may be written.

        A descriptor stands for what it was opened on.
        """
        if path is None:
            return None
        text = _behind(path) if isinstance(path, int) else str(Path.cwd() / os.fsdecode(path))
        return text if reaches_out(text, self._folder) else None


def reaches_out(path: str, folder: str | None) -> bool:
    """Whether a file is neither one that nobody else sees nor inside of `folder`, which ends with a separator.

    `path` is absolute, or what `/proc` says of a descriptor that has no path.
    """
    if path in _SINKS or path.startswith(_UNNAMED) or not path.startswith("/"):
        return False
    return folder is None or not (os.path.realpath(path) + os.sep).startswith(folder)


def _behind(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return "closed"  # what is asked of a closed descriptor fails by itself


def _always(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return ", ".join(_short(arg) for arg in args if not hasattr(arg, "fileno"))


def _new_socket(guard: Guard, args: tuple[Any, ...]) -> str | None:
    # A pair of connected local sockets is how event loops wake themselves; it reaches nobody.
    family = args[1] if len(args) > 1 else None
    return None if int(family or 0) == 1 else f"family {family}"


def _opened(guard: Guard, args: tuple[Any, ...]) -> str | None:
    path, mode, flags = (*args, None, None, None)[:3]
    if isinstance(path, int):
        return OWN_PIPE if path in guard.pipes else None
    by_mode = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    by_flags = isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
    return guard.outside(path) if by_mode or by_flags else None


def _one_path(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return guard.outside(args[0])


def _two_paths(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return guard.outside(args[0]) or guard.outside(args[1])


def _new_link(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return guard.outside(args[1])


def _database(guard: Guard, args: tuple[Any, ...]) -> str | None:
    return None if args[0] in (":memory:", "", b":memory:") else _short(args[0])


def _short(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


Rule = Callable[[Guard, tuple[Any, ...]], str | None]

_RULES: dict[str, Rule] = {
    "socket.__new__": _new_socket,
    **dict.fromkeys(
        (
            "socket.connect",
            "socket.bind",
            "socket.sendto",
            "socket.sendmsg",
            "socket.getaddrinfo",
            "socket.gethostbyname",
            "socket.gethostbyaddr",
            "socket.getnameinfo",
            "urllib.Request",
            "http.client.connect",
            "smtplib.connect",
            "ftplib.connect",
            "imaplib.open",
            "poplib.connect",
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.spawn",
            "pty.spawn",
            "os.kill",
            "os.killpg",
            "syslog.openlog",
            "syslog.syslog",
            "webbrowser.open",
            "socket.sethostname",
        ),
        _always,
    ),
    "open": _opened,
    "sqlite3.connect": _database,
    **dict.fromkeys(
        (
            "os.remove",
            "os.rmdir",
            "os.mkdir",
            "os.truncate",
            "os.chmod",
            "os.chown",
            "os.chflags",
            "os.utime",
            "os.setxattr",
            "os.removexattr",
            "shutil.rmtree",
            "shutil.chown",
            "tempfile.mkstemp",
            "tempfile.mkdtemp",
        ),
        _one_path,
    ),
    "os.rename": _two_paths,
    "shutil.move": _two_paths,
    "os.link": _new_link,
    "os.symlink": _new_link,
}


_NOT_USER = tuple(
    os.path.realpath(path) + os.sep
    for path in (
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["platstdlib"],
        sysconfig.get_paths()["purelib"],
        Path(__file__).parents[1],
    )
)


def _user_line() -> str:
    """File and line of the innermost frame that is neither Python's, an installed package's nor the engine's."""
    innermost: FrameType | None = sys._getframe(2)
    frame = innermost
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<") and not os.path.realpath(name).startswith(_NOT_USER):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "a library's thread" if innermost is None else f"{innermost.f_code.co_filename}:{innermost.f_lineno}"
