"""Which decision makes a failed job block its resource. Pure."""

from __future__ import annotations

from . import events as e
from . import state as s
from .texts import bounded


def with_block(events: tuple[e.Event, ...], job: s.JobState, resource: str | None, wanted: bool) -> tuple[e.Event, ...]:
    """A decision about a failure, with the block of the job's resource before its last event.

    `wanted` is the job type's `on_failure="block_key"`. A job blocks its resource from its first failure on, so that
    nothing overtakes it while it waits for its next attempt either.
    """
    if not wanted or resource is None or (job.holds is not None and job.holds.blocks):
        return events
    last = events[-1].body
    if not isinstance(last, e.RetryScheduled | e.CompensationStarted | e.MovedToInvestigation):
        return events
    reason = f"later jobs of {resource} wait until this one succeeds or is cancelled ({last.failure_class})"
    return (*events[:-1], e.Event(e.KeyBlocked(bounded(reason))), events[-1])
