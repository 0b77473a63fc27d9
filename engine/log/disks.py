"""Which kind of file system a path lies on."""

from __future__ import annotations

import os
import re
from pathlib import Path

#: SQLite's locks and shared memory do not work between machines, and on these not always on one; nor do a store's.
NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "glusterfs", "ncpfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
}  # fmt: skip
MOUNTS = Path("/proc/self/mounts")


def file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system that `path` lies on (by the longest mount point); '' where unknown."""
    try:
        table = mounts.read_text(errors="surrogateescape")
    except OSError:
        return ""
    real = Path(os.path.realpath(path))
    best, found = -1, ""
    for line in table.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)  # blanks are written in octal
        if real.is_relative_to(point) and len(point) >= best:
            best, found = len(point), kind
    return found
