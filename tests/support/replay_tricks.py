"""Ways to reach outside that raise no audit event of Python, or none that says where they go."""

from __future__ import annotations

import _posixshmem
import ctypes
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def _ledger(suffix: str = "") -> str:
    return os.environ["REPLAY_LEDGER"] + suffix


def _reading() -> int:
    return os.open(_ledger(), os.O_RDONLY)


def _attach() -> None:
    sqlite3.connect(":memory:").execute("ATTACH ? AS other", (_ledger(".attached"),))


def _vacuum() -> None:
    sqlite3.connect(":memory:").execute(f"VACUUM INTO '{_ledger('.vacuumed')}'")


def _no_authorizer() -> None:
    database = sqlite3.connect(":memory:")
    database.set_authorizer(None)
    database.execute(f"ATTACH '{_ledger('.unauthorized')}' AS other")
    database.execute("CREATE TABLE other.t (x)")


def _native(name: str, *args: object) -> Callable[[], None]:
    """A call of the C library with the ledger's path as its first argument."""
    return lambda: _call(name, _ledger().encode(), *args)


def _call(name: str, *args: object) -> None:
    function = getattr(ctypes.CDLL(None), name)
    function(*args)


def _native_write() -> None:
    libc = ctypes.CDLL(None)
    handle = libc.open(_ledger(".native").encode(), os.O_WRONLY | os.O_CREAT, 0o600)
    libc.write(handle, b"x", 1)


def _signal_parent() -> None:
    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGCONT)


def _reply_pipe() -> int:
    """The descriptor that answers go to: the only pipe above the standard ones that can be written."""
    for found in Path("/proc/self/fdinfo").iterdir():
        opened = Path(f"/proc/self/fd/{found.name}")
        if int(found.name) > 2 and opened.is_fifo() and int(found.read_text().split()[3], 8) & os.O_WRONLY:
            return int(found.name)
    raise LookupError("there is no such pipe")


def _shared() -> None:
    _posixshmem.shm_open("/rewindq-x", os.O_CREAT | os.O_RDWR, 0o600)


def harmless() -> None:
    """What touches nothing but this process."""
    multiprocessing.Lock()
    memory = os.memfd_create("x")
    os.ftruncate(memory, 10)
    os.fchmod(memory, 0o600)
    signal.pthread_kill(threading.get_ident(), signal.SIGCONT)
    libc = ctypes.CDLL(None)
    if libc.open(os.devnull.encode(), os.O_WRONLY) < 0:
        raise RuntimeError("nothing can be written to the null device")
    with sqlite3.connect(":memory:") as database:
        database.execute("ATTACH ':memory:' AS other")
        database.execute("CREATE TABLE other.t (x)")


TRICKS: dict[str, tuple[str, Callable[[], object]]] = {
    "attach": ("sqlite3.attach", _attach),
    "vacuum": ("sqlite3.attach", _vacuum),
    "no authorizer": ("openat", _no_authorizer),
    "mkfifo": ("os.mkfifo", lambda: os.mkfifo(_ledger(".fifo"))),
    "mknod": ("os.mknod", lambda: os.mknod(_ledger(".node"))),
    "fchmod": ("os.chmod", lambda: os.fchmod(_reading(), 0o777)),
    "futime": ("os.utime", lambda: os.utime(_reading(), (1, 1))),
    "kill": ("os.kill", lambda: os.kill(os.getppid(), signal.SIGCONT)),
    "pidfd": ("signal.pidfd_send_signal", _signal_parent),
    "shared memory": (
        "_posixshmem.shm_open",
        lambda: _posixshmem.shm_open("/rewindq-x", os.O_CREAT | os.O_RDWR, 0o600),
    ),
    "native write": ("openat", _native_write),
    "native unlink": ("unlink", _native("unlink")),
    "native chmod": ("chmod", _native("chmod", 0o777)),
    "native truncate": ("truncate", _native("truncate", 0)),
    "native mkfifo": ("mknod", lambda: _call("mkfifo", _ledger(".fifo").encode(), 0o600)),
    "native fchmod": ("fchmod", lambda: _call("fchmod", _reading(), 0o777)),
    "native rename": ("rename", lambda: _call("rename", _ledger().encode(), _ledger(".moved").encode())),
    "native symlink": ("symlink", lambda: _call("symlink", _ledger().encode(), _ledger(".link").encode())),
    "native kill": ("kill", lambda: _call("kill", os.getppid(), signal.SIGCONT)),
    "native program": ("execve", lambda: _call("execl", sys.executable.encode(), b"python", b"-V", None)),
    "exit 0": ("os._exit", lambda: os._exit(0)),
    "exit 3": ("os._exit", lambda: os._exit(3)),
    "native exit": ("exit", lambda: _call("_exit", 3)),
    "close pipe": ("os.close", lambda: os.close(_reply_pipe())),
    "close all": ("os.closerange", lambda: os.closerange(3, 256)),
    "write pipe": ("os.write", lambda: os.write(_reply_pipe(), b"hello")),
    "open pipe": ("open", lambda: open(_reply_pipe(), "wb")),  # noqa: SIM115
    "native close": ("pipe", lambda: _call("close", _reply_pipe())),
    "native pipe write": ("pipe", lambda: _call("write", _reply_pipe(), b"hello, parent", 13)),
}
