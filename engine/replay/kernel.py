"""The second line behind the guard: asks the kernel to refuse what native code could do without the interpreter.

A seccomp filter makes connecting, binding, sending to an address and starting programs fail with EPERM for the rest of
this process, C clients' own threads included. Linux on x86-64 and ARM64 only, and only where the kernel allows it; it
cannot name who tried, so the audit guard stays the first line.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import NamedTuple

_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
# Where the kernel's `seccomp_data` keeps the call's number, the architecture, and sendto's fifth argument.
_NUMBER, _ARCHITECTURE, _ADDRESS_LOW, _ADDRESS_HIGH = 0, 4, 48, 52
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06


class _Calls(NamedTuple):
    architecture: int
    sendto: int
    refused: tuple[int, ...]


#: connect, bind, listen, sendmsg, sendmmsg, execve, execveat and io_uring_setup, by machine.
_MACHINES = {
    "x86_64": _Calls(0xC000003E, 44, (42, 49, 50, 46, 307, 59, 322, 425)),
    "aarch64": _Calls(0xC00000B7, 206, (203, 200, 201, 211, 269, 221, 281, 425)),
}


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("when_true", ctypes.c_uint8),
        ("when_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def close_kernel() -> bool:
    """Closes these calls for this thread and all that it starts. False where the kernel does not offer it."""
    calls = _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        return False
    code = _program(calls)
    program = _Program(len(code), (_Instruction * len(code))(*code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0) == 0)


def _program(calls: _Calls) -> list[_Instruction]:
    """Refuses the listed calls, and sendto with an address: without one it is how an event loop wakes itself."""
    # Behind the listed calls stand: the jump for sendto, allow, two checks of its address, allow, refuse.
    count = len(calls.refused)
    code = [
        _Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        _Instruction(_EQUALS, 1, 0, calls.architecture),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_LOAD, 0, 0, _NUMBER),
    ]
    code.extend(_Instruction(_EQUALS, count - at + 6, 0, number) for at, number in enumerate(calls.refused))
    return [
        *code,
        _Instruction(_EQUALS, 1, 0, calls.sendto),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_LOAD, 0, 0, _ADDRESS_LOW),
        _Instruction(_EQUALS, 0, 3, 0),
        _Instruction(_LOAD, 0, 0, _ADDRESS_HIGH),
        _Instruction(_EQUALS, 0, 1, 0),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _REFUSE),
    ]
