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


THROUGH = (Family.PAYLOADS, Family.TRACES, Family.MARKS)


class Model:
    """A store as two dicts, read by brute force; a branch is one that looks at its base's as well."""

    def __init__(self, base: Model | None = None, seq: int = 0) -> None:
        self.base, self.seq = base, seq
        self.own: dict[tuple[Family, bytes], bytes | None] = {}
        self.own_versions: dict[tuple[Family, bytes], dict[int, bytes]] = {}

    def write(self, changes: list[Put | Delete]) -> None:
        for change in changes:
            where = change.family, change.key
            if isinstance(change, Delete) and change.seq is not None:
                own = self.own_versions.get(where, {})
                own.pop(change.seq, None)
                if not own:
                    self.own_versions.pop(where, None)
            elif isinstance(change, Delete):
                self.own[where] = None
            elif change.seq is None:
                self.own[where] = change.value
            else:
                self.own_versions.setdefault(where, {})[change.seq] = change.value

    def plain(self, family: Family) -> dict[bytes, bytes]:
        found = self.base.plain(family) if self.base and family in THROUGH else {}
        both = found | {key: value for (at, key), value in self.own.items() if at is family}
        return {key: value for key, value in both.items() if value is not None}

    def versions(self, family: Family) -> dict[bytes, dict[int, bytes]]:
        found: dict[bytes, dict[int, bytes]] = {}
        for key, versions in self.base.versions(family).items() if self.base else ():
            if kept := {seq: value for seq, value in versions.items() if seq <= self.seq}:
                found[key] = kept
        for (at, key), own in self.own_versions.items():
            if at is family:
                found[key] = found.get(key, {}) | own
        return found

    def history(self, family: Family, key: bytes, first: int = 0, last: int = 2**64) -> list[Version]:
        found = self.versions(family).get(key, {})
        return [Version(seq, found[seq]) for seq in sorted(found) if first <= seq <= last]

    def at(self, family: Family, key: bytes, seq: int = 2**64) -> Version | None:
        return next(reversed(self.history(family, key, 0, seq)), None)

    def keys(self, family: Family, prefix: bytes = b"", seq: int = 2**64) -> list[bytes]:
        found = self.versions(family).items()
        return sorted(key for key, versions in found if key.startswith(prefix) and min(versions) <= seq)

    def scan(self, family: Family, prefix: bytes = b"", start: bytes = b"") -> list[tuple[bytes, bytes]]:
        found = self.plain(family).items()
        return sorted((key, value) for key, value in found if key.startswith(prefix) and key >= start)
