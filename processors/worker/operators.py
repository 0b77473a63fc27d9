"""Carrying out what operators ask: each command is decided in log order by the partition that it is appended to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core.quarantine import decide_quarantine
from rewindq.engine.runtime.deployment import Deployment

from .owner import About, Owner, Taken
from .resolving import resolve
from .reverting import take_revert

if TYPE_CHECKING:
    from .intake import Intake


class Operators:
    """The operators' commands of a worker's partitions. `intake` knows the rules of job types, and held submissions."""

    def __init__(self, deployment: Deployment, intake: Intake) -> None:
        self._deployment = deployment
        self._intake = intake

    def take(self, owner: Owner, decoded: e.EventRecord, job_id: str) -> Taken | None:
        """Carries a record's command out; None where the record holds none."""
        body = decoded.events[0].body if decoded.events else None
        if isinstance(body, e.CancelCommand | e.RetryCommand):
            return self._of_job(owner, job_id, body)
        if isinstance(body, e.QuarantineCommand | e.LiftCommand):
            return self.quarantine(owner, body)
        if isinstance(body, e.ResolveCommand):
            return Taken(None, resolve(self._deployment, owner, self._intake.remote, job_id, body))
        if isinstance(body, e.RevertCommand):
            return Taken(None, take_revert(owner, self._deployment.partitions, decoded, body))
        if isinstance(body, e.RewindCommand):
            return self._rewound(owner, job_id, body)
        return None

    def _of_job(self, owner: Owner, job_id: str, body: e.CancelCommand | e.RetryCommand) -> Taken:
        if owner.states.commands.of(job_id, body.command_id) is not None:
            return Taken(None, ())
        if isinstance(body, e.CancelCommand) and self._intake.unknown.holds(owner.partition, job_id):
            self._intake.end_hold(owner, job_id, "cancelled", None)
        head = owner.states.head(job_id)
        job = owner.states.job(job_id)
        if isinstance(body, e.CancelCommand):
            if job is None:
                return self._keep_cancel(owner, job_id, body)
            events = d.decide_cancel(job, body)
        else:
            unique = self._intake.unique_again(owner, job_id, head)
            events = d.decide_operator_retry(job, body, unique, self._deployment.time.now_us())
        if head is None or job is None:
            owner.append(About(None, 0, job_id.encode()), events)
            return Taken(None, events)
        owner.append(About.job(job_id, head, job.attempt, owner.partition, job.last_seq), events)
        return Taken(job_id, events)

    def quarantine(self, owner: Owner, body: e.QuarantineCommand | e.LiftCommand) -> Taken:
        """Carries a quarantine's command out, once: a takeover does it before its offset is reached."""
        events = decide_quarantine(owner.states.quarantine(body.type), body)
        if events:
            owner.append(About(None, 0, body.type.encode()), events)
        return Taken(None, events)

    def _keep_cancel(self, owner: Owner, job_id: str, body: e.CancelCommand) -> Taken:
        """A cancel that came before its job. The job's home may be another partition: all of them are told."""
        events = d.decide_cancel(None, body, owner.states.cancels.oldest_to_drop())
        about = About(job_id, 0, job_id.encode())
        owner.append(about, events)
        if not body.relayed:
            about = replace(about, causation_id=f"p{owner.partition}@{owner.seq - 1}")
            event = e.Event(replace(body, relayed=True))
            for partition in range(self._deployment.partitions):
                if partition != owner.partition:
                    owner.unnumbered(self._deployment.topics.commands, partition, about, event)
        return Taken(None, events)

    def _rewound(self, owner: Owner, job_id: str, body: e.RewindCommand) -> Taken:
        event = e.Event(
            e.GroupRewound(
                body.group,
                body.input_topic,
                body.from_offset,
                body.to_offset,
                body.reason,
                body.actor,
                body.command_id,
            )
        )
        owner.append(About(None, 0, job_id.encode()), (event,))
        return Taken(None, (event,))
