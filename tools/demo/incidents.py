"""Finds in the log's events what went wrong on the way, and that it did no harm where the queue stood before it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.merge import Merged


class Write(NamedTuple):
    """A version of an account: who wrote it, with how many points."""

    version: int
    job_id: str
    points: int


@dataclass
class Incidents:
    """The jobs that each kind of incident befell. `watch` takes a partition's records in order."""

    #: A call failed before it was done, and a later attempt went through.
    refused: set[str] = field(default_factory=set)
    #: A call was done though nobody heard of it; asking found it, where trying again would have charged twice.
    found_done: set[str] = field(default_factory=set)
    #: Somebody else wrote the account between the read and the write.
    conflicts: set[str] = field(default_factory=set)
    #: The cache answered with points of an older version of the account than the one just read.
    stale_reads: set[str] = field(default_factory=set)
    #: The attempt's worker was killed.
    lost: set[str] = field(default_factory=set)
    #: Orders whose last word on the account came from a stale read.
    stale_writes: set[str] = field(default_factory=set)
    #: The versions of each account, in order.
    writes: dict[str, list[Write]] = field(default_factory=lambda: defaultdict(list))
    _loaded: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _stale: dict[str, bool] = field(default_factory=dict)

    def watch(self, merged: Merged) -> None:
        """Takes one record in."""
        record = merged.record
        if merged.stale is not None or record.job_id is None:
            return
        for event in record.events:
            self._take(record.job_id, event)

    def _take(self, job_id: str, event: e.Event) -> None:
        body = event.body
        if isinstance(body, e.EffectFailed):
            self.refused.add(job_id)
        elif isinstance(body, e.EffectSucceeded) and body.evidence == "lookup":
            self.found_done.add(job_id)
        elif isinstance(body, e.WriteConflict):
            self.conflicts.add(job_id)
        elif isinstance(body, e.AttemptLost):
            self.lost.add(job_id)
        elif isinstance(body, e.StepCompleted) and body.kind == "load":
            self._loaded[job_id] = event.resource_version or 0
            self._stale[job_id] = False
        elif isinstance(body, e.CacheRead) and body.hit and int(body.version or 0) < self._loaded[job_id]:
            self.stale_reads.add(job_id)
            self._stale[job_id] = True
        elif isinstance(body, e.StateChanged):
            points = values.decode(body.changes)["points"]
            self.writes[event.resource or ""].append(Write(event.resource_version or 0, job_id, points))
            if self._stale.get(job_id):
                self.stale_writes.add(job_id)

    def counts(self) -> dict[str, int]:
        """Jobs by incident."""
        return {
            "calls that failed": len(self.refused),
            "retries that would have charged twice": len(self.found_done),
            "write conflicts": len(self.conflicts),
            "stale cache reads": len(self.stale_reads),
            "attempts whose worker was killed": len(self.lost),
        }
