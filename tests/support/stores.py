"""Stores under test, by kind, and a model of what each of them promises."""

from __future__ import annotations

from pathlib import Path

from rewindq.engine.ports.store import Delete, Family, Put, Store, Version
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.opener import open_store

#: What a contract test runs against; an overlay's base is empty until a test writes to it.
KINDS = ("memory", "rocks", "overlay-on-memory", "overlay-on-rocks")


def open_kind(kind: str, folder: Path) -> Store:
    """A new, empty store of that kind."""
    if kind.startswith("overlay-on-"):
        return open_kind(kind.removeprefix("overlay-on-"), folder / "base").branch(str(folder / "branch"), 100)
    if kind == "memory":
        return MemoryStore()
    return open_store(str(folder / "store"), branch="main", partition=0)


class Model:
    """A store as two dicts, read by brute force. A branch copies what it can see of its base."""

    def __init__(self) -> None:
        self.plain: dict[tuple[Family, bytes], bytes] = {}
        self.versions: dict[tuple[Family, bytes], dict[int, bytes]] = {}

    def write(self, changes: list[Put | Delete]) -> None:
        for change in changes:
            where = change.family, change.key
            if isinstance(change, Delete):
                self.plain.pop(where, None)
            elif change.seq is None:
                self.plain[where] = change.value
            else:
                self.versions.setdefault(where, {})[change.seq] = change.value

    def history(self, family: Family, key: bytes, first: int = 0, last: int = 2**64) -> list[Version]:
        found = self.versions.get((family, key), {})
        return [Version(seq, found[seq]) for seq in sorted(found) if first <= seq <= last]

    def at(self, family: Family, key: bytes, seq: int) -> Version | None:
        return next(reversed(self.history(family, key, 0, seq)), None)

    def keys(self, family: Family, prefix: bytes = b"", seq: int = 2**64) -> list[bytes]:
        keys = sorted(key for at, key in self.versions if at is family and key.startswith(prefix))
        return [key for key in keys if self.at(family, key, seq)]

    def scan(self, family: Family, prefix: bytes = b"", start: bytes = b"") -> list[tuple[bytes, bytes]]:
        return sorted(
            (key, value)
            for (at, key), value in self.plain.items()
            if at is family and key.startswith(prefix) and key >= start
        )

    def branch(self, seq: int) -> Model:
        """For a base that is not written to any more."""
        branch = Model()
        through = (Family.PAYLOADS, Family.TRACES)
        branch.plain = {where: value for where, value in self.plain.items() if where[0] in through}
        branch.versions = {
            where: {at: value for at, value in found.items() if at <= seq} for where, found in self.versions.items()
        }
        return branch
