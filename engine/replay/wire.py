"""What the parent and the replaying child say to each other, over two pipes: frames of MessagePack.

The child has no log, no store and no blob folder: it asks the parent for what it needs of the past.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Lock
from typing import Any

import msgspec

from ..ports.blobs import BlobMissing
from ..ports.store import Family, StoreError, Version

_LENGTH = 4
#: Before each frame, so that what others write into the pipe is seen for what it is.
_MARK = b"\xf5rwq"


class Broken(Exception):
    """The other side of the pipe is gone."""


class Garbled(Broken):
    """Something that is no frame was written into the pipe."""


class Request(msgspec.Struct, frozen=True):
    """What a child is to replay. `records` are the job's event records, encoded; `head` is the job's, as stored.

    `mode` is dry-run or fork; `base` the position from which a fork runs anew; `cwd_app` the app as `module:attribute`.
    `limit` seconds bound the handler. `folder` is the only one in which files may be written. `changes` are the
    payload's paths that were changed.
    """

    mode: str
    app: str
    job_id: str
    attempt: int
    partition: int
    partitions: int
    records: list[bytes]
    head: bytes
    payload: bytes
    base: int
    has_blobs: bool
    bypass: bool = False
    branch: str | None = None
    folder: str | None = None
    limit: float = 300.0
    changes: tuple[str, ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """What a replay came to. `records` are a fork's own: `(lifecycle or domain, encoded record)`.

    `divergences` are JSON, as INTERFACE shows them. `outcome`: succeeded, failed, unfinished or blocked;
    refused or unloadable where nothing ran.
    """

    outcome: str
    failed_step: str | None = None
    reason: str | None = None
    failure_class: str | None = None
    divergences: bytes = b"[]"
    violations: tuple[tuple[str, str, str], ...] = ()
    records: tuple[tuple[str, bytes], ...] = ()
    events: int = 0
    code_version: str | None = None


class Pipe:
    """Frames both ways: a mark, a length of 4 bytes, then one MessagePack value."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        # Unbuffered, so that whoever waits for the descriptor misses nothing.
        self._read = os.fdopen(read_fd, "rb", buffering=0)
        self._write = os.fdopen(write_fd, "wb")
        self._lock = Lock()

    def send(self, kind: str, value: Any = None) -> None:
        """Raises Broken."""
        data = msgspec.msgpack.encode((kind, value))
        with self._lock:
            try:
                self._write.write(_MARK + len(data).to_bytes(_LENGTH, "big") + data)
                self._write.flush()
            except (OSError, ValueError) as error:
                raise Broken("the other side of the pipe is gone") from error

    def receive(self) -> tuple[str, Any]:
        """The next frame. Raises Broken at the end, Garbled."""
        head = self._exactly(len(_MARK) + _LENGTH)
        if not head.startswith(_MARK):
            raise Garbled(f"{head!r} is no beginning of a frame")
        kind, value = msgspec.msgpack.decode(self._exactly(int.from_bytes(head[len(_MARK) :], "big")))
        return kind, value

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self._read.read(count - len(data))
            except (OSError, ValueError) as error:
                raise Broken("this side of the pipe is closed") from error
            if not part:
                raise Broken("the other side of the pipe is gone")
            data += part
        return data

    def ask(self, kind: str, value: Any) -> Any:
        """Sends a question and waits for its answer. Raises what the other side could not do."""
        self.send(kind, value)
        answer, found = self.receive()
        if answer == "missing":
            raise BlobMissing(found)
        if answer == "refused":
            raise StoreError(found)
        return found

    @property
    def descriptors(self) -> frozenset[int]:
        """Both ends."""
        return frozenset((self._read.fileno(), self._write.fileno()))

    def close(self) -> None:
        """Closes both ends."""
        for end in (self._read, self._write):
            try:
                end.close()
            except BrokenPipeError:
                continue


class RemoteView:
    """A partition's past, read by the parent. Implements `View` for what a replay asks."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def get(self, family: Family, key: bytes) -> bytes | None:
        """A plain key's value."""
        found: bytes | None = self._pipe.ask("get", (family, key))
        return found

    def latest(self, family: Family, key: bytes) -> Version | None:
        """A versioned key's newest value."""
        return self.at(family, key, 2**63 - 1)

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        """A versioned key's newest value written at `seq` or before."""
        found = self._pipe.ask("at", (family, key, seq))
        return None if found is None else Version(*found)

    def history(
        self, family: Family, key: bytes, *, first: int = 0, last: int | None = None, reverse: bool = False
    ) -> Iterator[Version]:
        """A versioned key's values with `first <= seq <= last`."""
        found = [Version(*item) for item in self._pipe.ask("history", (family, key, first, last))]
        return iter(found[::-1] if reverse else found)

    def scan(
        self, family: Family, prefix: bytes = b"", *, start: bytes | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Not offered across the pipe."""
        raise NotImplementedError("a replay reads keys by name")

    def keys(self, family: Family, prefix: bytes = b"") -> Iterator[bytes]:
        """Not offered across the pipe."""
        raise NotImplementedError("a replay reads keys by name")


class RemoteBlobs:
    """The blob store, read by the parent; nothing can be put."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def get(self, ref: str) -> bytes:
        """The bytes of a reference. Raises BlobMissing."""
        found: bytes = self._pipe.ask("blob", ref)
        return found

    def put(self, data: bytes) -> str:
        """Refused: a replay keeps nothing outside of its branch."""
        raise StoreError("a replay puts nothing into the blob store")
