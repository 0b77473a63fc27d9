"""The second line behind the guard: asks the kernel to stop what native code could do without the interpreter.

A seccomp filter holds connecting, sending to an address, starting programs, signalling others and changing files, for
the rest of this process, C clients' own threads included. Where the kernel offers it (Linux 5.5), a held call is shown
to the parent, which refuses and names it (`watch.py`), or lets it through into the replay's own folder. On an older
kernel these calls fail with EPERM and no name, except those on files that an interpreter needs or that may stay inside
the folder. Linux on x86-64 and ARM64 only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading

from .calls import Call, Machine, this_machine

_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _REFUSE, _SHOW = 0x7FFF0000, 0x00050000 | 1, 0x7FC00000  # EPERM; to whoever listens
# Where the kernel's `seccomp_data` keeps the call's number, the architecture, and the first of six arguments.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _EQUALS, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: What naming a semaphore needs; without anybody who looks at the path, these stay allowed.
_LEFT_OPEN = frozenset({"link", "linkat", "unlink", "unlinkat"})


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("when_true", ctypes.c_uint8),
        ("when_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def close_kernel(channel: socket.socket | None = None, *, has_folder: bool = False) -> bool:
    """Holds these calls of this thread and all that it starts. False where the kernel does not offer it.

    `channel`, a Unix socket, gets the descriptor from which held calls are read; without it they fail. `has_folder`:
    this process may write files into a folder of its own.
    """
    machine = this_machine()
    if machine is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    if channel is not None and _show_to(channel, libc, machine):
        return True
    program = _compiled(_refusing(machine, has_folder))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0) == 0)


def _show_to(channel: socket.socket, libc: ctypes.CDLL, machine: Machine) -> bool:
    """Installs the filter that shows its calls. The thread that hands the descriptor on is not under the filter."""
    made: list[int] = []
    ready = threading.Event()

    def hand_on() -> None:
        ready.wait()
        if made:
            socket.send_fds(channel, [b"calls"], made)

    sender = threading.Thread(target=hand_on)
    sender.start()
    program = _compiled(_showing(machine))
    call = _SECCOMP_CALL[os.uname().machine]
    listener = libc.syscall(call, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener >= 0:
        made.append(listener)
    ready.set()
    sender.join()
    for descriptor in made:
        os.close(descriptor)
    return bool(made)


def _compiled(code: list[_Instruction]) -> _Program:
    return _Program(len(code), (_Instruction * len(code))(*code))


def _showing(machine: Machine) -> list[_Instruction]:
    plain = (*machine.never, *machine.files, *machine.signals, machine.openat2)
    code = _start(machine, _SHOW)
    for call in plain:
        code += _when(call, _SHOW)
    for call, flags in machine.opens:
        code += _when_argument(call, flags, _WRITES, _SHOW)
    return [*code, _Instruction(_RETURN, 0, 0, _ALLOW)]


def _refusing(machine: Machine, has_folder: bool) -> list[_Instruction]:
    code = _start(machine, _REFUSE)
    for call in (*machine.never, *(() if has_folder else machine.files)):
        if call.name not in _LEFT_OPEN:
            code += _when(call, _REFUSE)
    return [*code, _Instruction(_RETURN, 0, 0, _ALLOW)]


def _start(machine: Machine, act: int) -> list[_Instruction]:
    """What holds in both filters: a message with an address (an event loop wakes itself without), shared memory."""
    code = [
        _Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        _Instruction(_EQUALS, 1, 0, machine.architecture),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_LOAD, 0, 0, _NUMBER),
        *_when_argument(machine.sendto, 4, 0xFFFFFFFF, act),
    ]
    for call in machine.private:
        code += _when_argument(call, 0, 0xFFFFFFFF, act)
    return code


def _when(call: Call, act: int) -> list[_Instruction]:
    return [_Instruction(_EQUALS, 0, 1, call.number), _Instruction(_RETURN, 0, 0, act)]


def _when_argument(call: Call, argument: int, bits: int, act: int) -> list[_Instruction]:
    """Acts when the argument has any of these bits; all bits of a whole word means its high half, too."""
    low = _ARGUMENTS + 8 * argument
    words = [(low, bits), (low + 4, bits)] if bits == 0xFFFFFFFF else [(low, bits)]
    tests = []
    for at, (offset, mask) in enumerate(words):
        left = 2 * (len(words) - at - 1)
        tests += [_Instruction(_LOAD, 0, 0, offset), _Instruction(_HAS_BITS, left + 1, 0, mask)]
    tests += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, act)]
    return [_Instruction(_EQUALS, 0, len(tests), call.number), *tests]
