"""Entries of parked jobs: kept from the event that parks a job until the investigation topic has its entry."""

from __future__ import annotations

from typing import Protocol

from . import events as e
from . import state as s
from .evolve import FoldError, Moment


class UnpostedEntries(Protocol):
    """The entries that the investigation topic has not got yet, by the number of the event that parked their job."""

    def of(self, seq: int) -> s.Unposted | None:
        """One of them."""
        ...

    def put(self, seq: int, value: s.Unposted | None) -> None:
        """Stores or removes it."""
        ...


def apply_entry(entries: UnpostedEntries, record: e.EventRecord, event: e.Event, at: Moment) -> None:
    """A job was parked, or an entry posted. Raises FoldError for one that does not wait to be posted."""
    body = event.body
    if isinstance(body, e.MovedToInvestigation):
        original = (body.source_topic, body.source_offset, body.original, body.original_ref, body.type)
        named = (record.resource, record.trace_id, record.correlation_id)
        fields = (str(body.failure_class), body.reason, *original)
        entries.put(at.seq, s.Unposted(at.job_id, at.attempt, *named, at.step, fields))
    elif isinstance(body, e.EntryPosted):
        if entries.of(body.entry) is None:
            raise FoldError(f"EntryPosted at seq {at.seq}: the entry of event {body.entry} does not wait to be posted")
        entries.put(body.entry, None)
