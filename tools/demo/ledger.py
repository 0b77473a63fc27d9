"""A service's own ledger: one appended line a booking, read back at start. It never changes or drops a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Ledger:
    """Bookings under their keys. A key that is booked twice has two lines: that is how a double charge shows."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._by_key = {entry["key"]: entry for entry in read_ledger(path)}
        self._count = len(self._by_key)

    def book(self, key: str, reference: str, details: dict[str, Any]) -> dict[str, Any]:
        """Appends a booking and returns it, with the `receipt` that names it."""
        self._count += 1
        entry = {"key": key, "receipt": f"{reference}-{self._count}", **details}
        os.write(self._file, json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._by_key[key] = entry
        return entry

    def find(self, key: str) -> dict[str, Any] | None:
        """The booking under a key."""
        return self._by_key.get(key)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """All bookings in order, none where the file is not there. Raises ValueError for a line that is none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
