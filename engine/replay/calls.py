"""The kernel calls by which a program reaches beyond itself: their numbers by machine, and what each one touches."""

from __future__ import annotations

import platform
import sys
from typing import NamedTuple

#: Where a call names a file: `(place of the folder's descriptor, place of the path)`; no path means the descriptor's.
Place = tuple[int | None, int | None]


class Call(NamedTuple):
    """A call of the kernel on this machine. `places` name files; a call without any is refused wherever it goes."""

    name: str
    number: int
    places: tuple[Place, ...]


#: Reach beyond the process whatever their arguments are; x86-64's number, then ARM64's (None: has no such call).
_NEVER: dict[str, tuple[int | None, int | None]] = {
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "execve": (59, 221),
    "execveat": (322, 281),
    "io_uring_setup": (425, 425),
    "kill": (62, 129),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_writev": (311, 271),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgget": (68, 186),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "pivot_root": (155, 41),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "swapon": (167, 224),
    "init_module": (175, 105),
    "finit_module": (313, 273),
}

#: Change a file, which may be one of the replay's own folder.
_FILES: dict[str, tuple[int | None, int | None, tuple[Place, ...]]] = {
    "creat": (85, None, ((None, 0),)),
    "mkdir": (83, None, ((None, 0),)),
    "mkdirat": (258, 34, ((0, 1),)),
    "rmdir": (84, None, ((None, 0),)),
    "unlink": (87, None, ((None, 0),)),
    "unlinkat": (263, 35, ((0, 1),)),
    "rename": (82, None, ((None, 0), (None, 1))),
    "renameat": (264, 38, ((0, 1), (2, 3))),
    "renameat2": (316, 276, ((0, 1), (2, 3))),
    "link": (86, None, ((None, 1),)),
    "linkat": (265, 37, ((2, 3),)),
    "symlink": (88, None, ((None, 1),)),
    "symlinkat": (266, 36, ((1, 2),)),
    "mknod": (133, None, ((None, 0),)),
    "mknodat": (259, 33, ((0, 1),)),
    "chmod": (90, None, ((None, 0),)),
    "fchmod": (91, 52, ((0, None),)),
    "fchmodat": (268, 53, ((0, 1),)),
    "fchmodat2": (452, 452, ((0, 1),)),
    "chown": (92, None, ((None, 0),)),
    "lchown": (94, None, ((None, 0),)),
    "fchown": (93, 55, ((0, None),)),
    "fchownat": (260, 54, ((0, 1),)),
    "utime": (132, None, ((None, 0),)),
    "utimes": (235, None, ((None, 0),)),
    "futimesat": (261, None, ((0, 1),)),
    "utimensat": (280, 88, ((0, 1),)),
    "truncate": (76, 45, ((None, 0),)),
    "setxattr": (188, 5, ((None, 0),)),
    "lsetxattr": (189, 6, ((None, 0),)),
    "fsetxattr": (190, 7, ((0, None),)),
    "removexattr": (197, 14, ((None, 0),)),
    "lremovexattr": (198, 15, ((None, 0),)),
    "fremovexattr": (199, 16, ((0, None),)),
}


class Machine(NamedTuple):
    """The calls of one machine. `opens` are looked at with the place of their flags: reading is free.

    `private` make shared memory, which is the process's own when its key, the first argument, is 0.
    """

    architecture: int
    never: tuple[Call, ...]
    files: tuple[Call, ...]
    opens: tuple[tuple[Call, int], ...]
    signals: tuple[Call, ...]
    private: tuple[Call, ...]
    openat2: Call
    sendto: Call

    def by_number(self) -> dict[int, Call]:
        """All calls that are watched."""
        found = (*self.never, *self.files, *(call for call, _ in self.opens), *self.signals, *self.private)
        return {call.number: call for call in (*found, self.openat2, self.sendto)}


def _machine(architecture: int, at: int) -> Machine:
    never = tuple(Call(name, number, ()) for name, each in _NEVER.items() if (number := each[at]) is not None)
    files = tuple(
        Call(name, number, places)
        for name, (x86, arm, places) in _FILES.items()
        if (number := (x86, arm)[at]) is not None
    )
    opens: tuple[tuple[Call, int], ...] = ((Call("openat", (257, 56)[at], ((0, 1),)), 2),)
    if at == 0:
        opens = (*opens, (Call("open", 2, ((None, 0),)), 1))
    return Machine(
        architecture,
        never,
        files,
        opens,
        (Call("tkill", (200, 130)[at], ()), Call("tgkill", (234, 131)[at], ())),
        (Call("shmget", (29, 194)[at], ()), Call("semget", (64, 190)[at], ())),
        Call("openat2", 437, ((0, 1),)),
        Call("sendto", (44, 206)[at], ()),
    )


_MACHINES = {"x86_64": _machine(0xC000003E, 0), "aarch64": _machine(0xC00000B7, 1)}


def this_machine() -> Machine | None:
    """This machine's calls, None where they are not known."""
    return _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
