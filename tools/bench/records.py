"""One event a record, or one record for all events of a decision? Bytes and CPU of both, through the real codec."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core.events import DecisionRecorded, EffectStarted, Event, EventRecord, StepCompleted


def compare(events_max: int = 5, rounds: int = 20_000) -> list[tuple[int, str, int, float, float]]:
    """Rows of (events a decision, form, bytes, encode µs, decode µs)."""
    codec = Codec()
    step = Event(StepCompleted("load", 1234), step="load order:17", resource="order:17", resource_version=3)
    decision = Event(DecisionRecorded(b"false"), step="already paid")
    effect = Event(
        EffectStarted("order:17/charge/charge", "sha256:" + "0" * 64, b'{"args":[17]}', None, False),
        step="charge",
    )
    events = (step, decision, effect, step, decision)
    rows = []
    for count in range(1, events_max + 1):
        together = [
            EventRecord(9, 9, 1_700_000_000_000_000, 1, "worker-1-abcdef", "order-17", 1, events[:count], "order:17")
        ]
        apart = [replace(together[0], events=(event,)) for event in events[:count]]
        for form, records in (("one record", together), ("one each", apart)):
            encoded = [codec.encode(record) for record in records]
            encode = _time(partial(_each, codec.encode, records), rounds // count)
            decode = _time(partial(_each, codec.decode, encoded), rounds // count)
            rows.append((count, form, sum(map(len, encoded)), encode, decode))
    return rows


def _each(work: Callable[[Any], object], items: list[Any]) -> None:
    for item in items:
        work(item)


def _time(work: Callable[[], object], rounds: int) -> float:
    began = time.process_time()
    for _ in range(rounds):
        work()
    return 1e6 * (time.process_time() - began) / rounds
