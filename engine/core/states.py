"""The map of one partition as the fold reads and changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from . import events as e
from . import state as s
from .answered import Commands
from .entries import UnpostedEntries
from .revert import RevertMarks


class States(Protocol):
    """The map of one partition as the fold reads and changes it: newest values, by key."""

    def head(self, job_id: str) -> s.JobHead | None:
        """What never changes about the job."""
        ...

    def set_head(self, job_id: str, head: s.JobHead) -> None:
        """Stores it, once."""
        ...

    def job(self, job_id: str) -> s.JobState | None:
        """Where the job stands."""
        ...

    def set_job(self, job_id: str, seq: int, before: s.JobState | None, after: s.JobState) -> None:
        """Stores its next state, its place in the ready and timer indexes, and the counts by status."""
        ...

    def open_effects(self, job_id: str) -> s.OpenEffects | None:
        """The job's attempt and effect keys, while it is not over."""
        ...

    def set_open_effects(self, job_id: str, value: s.OpenEffects | None) -> None:
        """Stores or removes them."""
        ...

    def keep_cancel(self, job_id: str, body: e.CancelKept) -> None:
        """Keeps a cancel until its job comes; of too many, the oldest is dropped."""
        ...

    def drop_cancel(self, job_id: str) -> None:
        """Forgets a kept cancel, where there is one."""
        ...

    @property
    def commands(self) -> Commands:
        """The answers to operators' commands about jobs."""
        ...

    def lease(self, resource: str) -> s.Lease | None:
        """The newest grant of a resource."""
        ...

    def set_lease(self, resource: str, seq: int, value: s.Lease) -> None:
        """Stores a grant or its release."""
        ...

    def lent(self, resource: str) -> s.Lent | None:
        """The lease on a resource that a job of another partition holds now."""
        ...

    def set_lent(self, resource: str, value: s.Lent | None) -> None:
        """Stores or removes it."""
        ...

    def set_peer(self, partition: int, epoch: int) -> None:
        """Another partition's newest owner, as far as its requests told."""
        ...

    def idempotency(self, key: str) -> s.Idempotency | None:
        """What is known under an effect's key."""
        ...

    def set_idempotency(self, key: str, seq: int, value: s.Idempotency) -> None:
        """Stores it."""
        ...

    def expire_idempotency(self, seq: int, stubs: Mapping[str, s.Idempotency | None]) -> None:
        """Drops all that is stored under these keys; a stub takes its place where one is given."""
        ...

    def aggregate(self, key: str) -> s.Aggregate:
        """The aggregate's newest version, `NO_AGGREGATE` when there is none."""
        ...

    def set_aggregate(self, key: str, value: s.Aggregate, stored: s.AggregateVersion) -> None:
        """Stores its next version at `value.seq`."""
        ...

    def block(self, resource: str) -> s.KeyBlock | None:
        """The failed jobs that a resource's later jobs wait behind."""
        ...

    def set_block(self, resource: str, value: s.KeyBlock | None) -> None:
        """Stores or removes them."""
        ...

    def unique(self, job_type: str, key: str) -> s.UniqueMark | None:
        """Who holds a unique key of a type."""
        ...

    def set_unique(self, job_type: str, key: str, value: s.UniqueMark | None) -> None:
        """Stores or removes it."""
        ...

    def held_submission(self, job_id: str) -> s.Held | None:
        """A submission that waits for an owner which knows its type."""
        ...

    def set_held_submission(self, job_id: str, value: s.Held | None) -> None:
        """Stores or removes it."""
        ...

    def set_note(self, job_type: str, value: s.TypeNote | None) -> None:
        """Stores or removes why jobs of a type wait."""
        ...

    @property
    def entries(self) -> UnpostedEntries:
        """The entries of parked jobs that the investigation topic has not got yet."""
        ...

    @property
    def reverts(self) -> RevertMarks:
        """The commands that reverted a job's changes of an aggregate."""
        ...

    def quarantine(self, job_type: str) -> s.Quarantine | None:
        """A job type's quarantine, lifted ones included."""
        ...

    def set_quarantine(self, job_type: str, seq: int, value: s.Quarantine) -> None:
        """Stores it."""
        ...

    @property
    def schedules(self) -> Mapping[str, s.Schedule]:
        """The schedules that are at home here, by name."""
        ...

    def set_schedule(self, name: str, seq: int, value: s.Schedule) -> None:
        """Stores one."""
        ...
