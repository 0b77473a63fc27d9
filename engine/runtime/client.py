"""The client: submits jobs, asks where they stand, waits for results, sends operators' commands."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from ..codec.avro import UndecodableRecord
from ..core import state as s
from ..core import values
from ..core.secrets import MASK
from ..ports.blobs import BlobMissing
from ..ports.log import Reader
from .app import App
from .commands import CommandOutcome, CommandRefusedError, cancel_job, retry_job
from .deployment import Deployment
from .effects import Resolution, resolve_effect
from .past import FoundJob, NotFound, Past
from .quarantines import NotQuarantined, QuarantineOutcome, Quarantines, lift_quarantine, quarantine_type
from .reverts import Revert, revert_job
from .settings import load_settings
from .show import job_shown
from .submitting import Prepared, Receipt, Submission, SubmissionRefused, Submitter

#: Submissions appended at once by `submit_many`.
BATCH = 1000
#: Where a wait ends: the job will not go on by itself.
ENDED = s.TERMINAL | {s.INVESTIGATION}


class NotSucceeded(Exception):
    """The job ended otherwise than in success. `job` is the job as `status` shows it."""

    def __init__(self, job: dict[str, Any]) -> None:
        failure = job["failure"]
        because = f": {failure['class']}: {failure['reason']}" if failure else ""
        super().__init__(f"job {job['job_id']} is {job['status']}{because}")
        self.job = job


class Client:
    """A producer's and reader's view of one namespace. Close it, or use it as a context manager. Not thread-safe.

    `log`, `namespace` and `settings` are those of `rewindq.toml`; what is not given comes from the environment and that
    file. With `app`, payloads are checked against their models, and keys are derived, before anything is sent.
    """

    def __init__(
        self,
        log: str | None = None,
        namespace: str | None = None,
        *,
        app: App | None = None,
        deployment: Deployment | None = None,
        **settings: Any,
    ) -> None:
        """Opens the log, unless an open `deployment` is given, which then stays open when the client is closed.

        Raises SettingsError, LogUnavailable.
        """
        self._owned = deployment is None
        self.deployment = deployment or Deployment.open(load_settings(log=log, namespace=namespace, **settings))
        self._app = app
        self._ready = False
        self._past: Past | None = None
        self._name = f"client-{socket.gethostname()}-{os.getpid()}"
        self._submitter = Submitter(self.deployment, app, self._name)

    # --- submitting ---

    def submit(
        self,
        type: str,  # noqa: A002 - the public name of a job's type
        payload: BaseModel | Mapping[str, Any],
        key: str | None = None,
        job_id: str | None = None,
        delay: float | str = 0,
        priority: int = 0,
    ) -> Receipt:
        """Submits a job; when it returns, the submission is durable. The same `job_id` twice is one job.

        `key` is the partition key (default: what the job type's rules give, else the job's id), `delay` seconds.
        Raises SubmissionRefused, BodyTooLarge, AppendRefused (surely not accepted), OutcomeUnknown (submit again with
        the same id).
        """
        return self.submit_many([Submission(type, payload, key, job_id, delay, priority)])[0]

    def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt]:
        """Submits jobs in batches of 1000, in order; raises as `submit` does. Earlier batches stay accepted then."""
        receipts: list[Receipt] = []
        remaining = iter(submissions)
        while batch := list(islice(remaining, BATCH)):
            receipts += self.send([self.prepare(one) for one in batch])
        return receipts

    def prepare(self, submission: Submission) -> Prepared:
        """Checks a submission and makes its record; nothing is sent. Raises SubmissionRefused, BodyTooLarge."""
        if not self._ready:
            self.deployment.ensure_topics()
            self._ready = True
        return self._submitter.prepare(submission)

    def send(self, prepared: Sequence[Prepared]) -> list[Receipt]:
        """Appends what was prepared, as one batch. Raises AppendRefused, OutcomeUnknown as `submit` does."""
        return self._submitter.send(prepared)

    # --- asking ---

    @property
    def past(self) -> Past:
        """What this client reads from; opened when it is first used, up to the log's end at each question."""
        if self._past is None:
            self._past = Past(self.deployment)
        else:
            self._past.refresh()
        return self._past

    def status(self, job_id: str) -> dict[str, Any]:
        """Where a job stands. Raises NotFound."""
        past = self.past
        return job_shown(past.find(job_id), Quarantines(past))

    def result(self, job_id: str, timeout: float = 30) -> Any:
        """A job's result, once it has succeeded; as the type that its handler returns where the client has the app.

        Raises NotSucceeded when it ends otherwise, TimeoutError saying where it stands after `timeout` seconds,
        NotFound.
        """
        found = self.wait(job_id, timeout)
        job = job_shown(found)
        if found.state.status not in ENDED:
            raise TimeoutError(f"job {job_id} is {job['status']} after {timeout:g} s (attempt {job['attempt']})")
        if found.state.status != s.SUCCEEDED:
            raise NotSucceeded(job)
        return self._decode(found)

    def wait(self, job_id: str, timeout: float) -> FoundJob:
        """The job once it has ended (succeeded, cancelled or in investigation), or as it is after `timeout` seconds.

        Raises NotFound.
        """
        clock = self.deployment.clock
        deadline = clock.monotonic() + timeout
        found = self.past.find(job_id)
        if found.state.status in ENDED:
            return found
        # Opened before the next look: what happens behind it is never missed.
        reader = self._watch()
        try:
            found = self.past.accepted(job_id) or found
            while found.state.status not in ENDED and clock.monotonic() < deadline:
                self._until_heard_of(reader, job_id, deadline)
                found = self.past.accepted(job_id) or found
            return found
        finally:
            reader.close()

    def _until_heard_of(self, reader: Reader, job_id: str, deadline: float) -> None:
        """Returns when the lifecycle topic says something new of the job, or at the deadline."""
        clock, decode = self.deployment.clock, self.deployment.codec.decode
        while (left := deadline - clock.monotonic()) > 0:
            for record in reader.poll(1000, left):
                with contextlib.suppress(UndecodableRecord):
                    if decode(record.value).job_id == job_id:
                        return

    def _watch(self) -> Reader:
        deployment = self.deployment
        topic = deployment.topics.lifecycle
        ends = {(topic, p): deployment.log.bounds(topic, p)[1] for p in range(deployment.partitions)}
        return deployment.log.reader(ends)

    def _decode(self, found: FoundJob) -> Any:
        data, ref = found.state.result, found.state.result_ref
        if ref is not None:
            if self.deployment.blobs is None:
                raise BlobMissing(f"result {ref} is in a blob store, and none is set (--blobs or REWINDQ_BLOBS)")
            data = self.deployment.blobs.get(ref)
        if data is None:
            return None
        value = values.decode(data)
        job_type = self._app.types.get(found.head.type) if self._app is not None else None
        if job_type is None or job_type.result is None:
            return value
        try:
            return job_type.result.validate_python(value)
        except ValidationError:
            if MASK.encode() not in data:
                raise
            return value  # a field that is no text is masked by one

    # --- operators' commands ---

    def cancel(
        self, job_id: str, reason: str, actor: str | None = None, timeout: float = 0, request_id: str | None = None
    ) -> CommandOutcome:
        """Asks to cancel a job; waits up to `timeout` seconds until a worker has answered.

        Given again with the same `request_id`, this and the commands below are carried out once, with one result.
        Raises NotFound, CommandRefusedError when the job is over, ValueError without a reason.
        """
        past = self.past
        return cancel_job(past, past.find(job_id), reason, actor, timeout, request_id)

    def retry(
        self, job_id: str, reason: str, actor: str | None = None, timeout: float = 0, request_id: str | None = None
    ) -> CommandOutcome:
        """Asks to send a job of the investigation queue back; as `cancel`."""
        past = self.past
        return retry_job(past, past.find(job_id), reason, actor, timeout, request_id)

    def quarantine(
        self, job_type: str, reason: str, actor: str | None = None, timeout: float = 0, request_id: str | None = None
    ) -> QuarantineOutcome:
        """Holds a job type: no attempt of it starts until the quarantine is lifted; what runs may finish.

        Waits up to `timeout` seconds until all partitions have recorded it. On a partition without an owner it holds
        as soon as one starts. Raises ValueError without a reason, AppendRefused, OutcomeUnknown.
        """
        return quarantine_type(self.past, job_type, reason, actor, timeout, request_id)

    def lift_quarantine(
        self, job_type: str, reason: str, actor: str | None = None, timeout: float = 0, request_id: str | None = None
    ) -> QuarantineOutcome:
        """Lets a job type run again; as `quarantine`. Raises NotQuarantined."""
        return lift_quarantine(self.past, job_type, reason, actor, timeout, request_id)

    def quarantines(self) -> list[dict[str, Any]]:
        """The job types that are quarantined now: reason, by whom, since when, where, and how many jobs they hold."""
        return Quarantines(self.past).shown()

    def resolve(
        self,
        key: str,
        resolution: Resolution,
        reason: str,
        actor: str | None = None,
        timeout: float = 0,
        request_id: str | None = None,
    ) -> CommandOutcome:
        """Tells what became of the effect in doubt with this full key; as `cancel`. Raises BodyTooLarge, too."""
        return resolve_effect(self.past, key, resolution, reason, actor, timeout, request_id)

    def revert(
        self, job_id: str, reason: str, actor: str | None = None, timeout: float = 0, attempt: int | None = None
    ) -> Revert:
        """Takes back what a job that has ended, or one attempt of it, changed; as `cancel`.

        What somebody else has written since is left alone and told.
        """
        return revert_job(self.past, job_id, reason, actor, timeout, attempt)

    # --- end ---

    def close(self) -> None:
        """Frees what the client holds."""
        self._submitter.close()
        if self._past is not None:
            self._past.close()
        if self._owned:
            self.deployment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = [
    "Client",
    "CommandOutcome",
    "CommandRefusedError",
    "NotFound",
    "NotQuarantined",
    "NotSucceeded",
    "QuarantineOutcome",
    "Receipt",
    "Resolution",
    "Revert",
    "Submission",
    "SubmissionRefused",
]
