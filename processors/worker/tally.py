"""What workers did by what the log says: for those that were killed and could not tell it themselves."""

from __future__ import annotations

from collections.abc import Collection

from rewindq.engine.core import events as e
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import read_from

from .report import Report


class Tally:
    """Counts ends of jobs that were recorded after its making."""

    def __init__(self, deployment: Deployment) -> None:
        self._topic = deployment.topics.lifecycle
        bounds = deployment.log.bounds
        self._starts = [bounds(self._topic, partition)[1] for partition in range(deployment.partitions)]

    def count(self, deployment: Deployment, workers: Collection[str]) -> Report:
        """What these workers, by their ids, did since. Raises LogError."""
        found = Report()
        for partition, start in enumerate(self._starts):
            for record in read_from(deployment, self._topic, partition, start):
                decoded = deployment.codec.decode(record.value or b"")
                if decoded.worker_id in workers:
                    for event in decoded.events:
                        _add(found, event)
        return found


def _add(report: Report, event: e.Event) -> None:
    if isinstance(event.body, e.JobSucceeded):
        report.succeeded += 1
    elif isinstance(event.body, (e.MovedToInvestigation, e.JobCancelled)):
        report.failed += 1
    elif isinstance(event.body, e.RetryScheduled):
        report.retried += 1
