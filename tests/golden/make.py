"""Writes the golden records of the current release: `python -m tests.golden.make`, from the top of the checkout.

What exists is never overwritten: stored events of a released version look like this for ever. A new event type gets
its files by running this again; a new release gets a folder of its own.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from tests.support.records import filled, rendered

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core.events import BODIES, Event, EventRecord, NoteRecorded
from rewindq.schemas import catalog

HERE = Path(__file__).parent


def golden_records() -> dict[str, EventRecord]:
    """One record for each event type, one with nothing but what is required, and one of several events."""
    found = {}
    for name, kind in BODIES.items():
        numbers = count(1)
        event = Event(filled(kind, lambda n=numbers: next(n)))
        found[name] = EventRecord(7, 8, 1_790_000_000_000_000, 3, "worker-1", "job-1", 2, (event,), "order:1")
    numbers = count(1)
    number = lambda: next(numbers)  # noqa: E731 - it is handed on
    events = tuple(filled(Event, number, body=NoteRecorded(b"{}")) for _ in range(3))
    found["envelope"] = filled(EventRecord, number, events=events)
    found["minimal"] = EventRecord(0, 0, 0, 0, "", None, 0, ())
    return found


def main() -> None:
    folder = HERE / f"v{catalog.current_release()}"
    folder.mkdir(exist_ok=True)
    codec = Codec()
    for name, record in golden_records().items():
        data = folder / f"{name}.bin"
        if data.exists():
            print(f"{data.name} exists and stays as it is")
            continue
        data.write_bytes(codec.encode(record))
        text = json.dumps(rendered(record), indent=1, ensure_ascii=False)
        data.with_suffix(".json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
