"""Submissions: what a producer asks for, checked and made into records of the jobs topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from ..core import events as e
from ..core import values
from ..core.decide import PRIORITY_MAX
from ..core.names import valid_job_id
from ..core.partitioner import partition_for
from ..core.secrets import MARKED_NAME, holds_secret, secret_texts
from ..core.state import JobHead
from ..core.times import BadTime, duration_us
from ..ports.log import Append, OutcomeUnknown, Producer
from .app import App
from .context import encode_payload
from .deployment import Deployment
from .ids import new_id
from .kept import describe
from .rules import foreign_key

#: Longest type name and partition key, in characters.
NAME_MAX = 200
KEY_MAX = 1000


class SubmissionRefused(ValueError):
    """A submission is wrong and was not sent. Names the field and the reason."""


class Submission(NamedTuple):
    """A job to submit. `delay` is in seconds, or a duration such as `"1h30m"`."""

    type: str
    payload: BaseModel | Mapping[str, Any]
    key: str | None = None
    job_id: str | None = None
    delay: float | str = 0
    priority: int = 0


class Receipt(NamedTuple):
    """Where an accepted submission stands on the jobs topic."""

    job_id: str
    partition: int
    offset: int


class Content(NamedTuple):
    """What makes two submissions of one id the same: the job type and the payload's digest."""

    type: str
    digest: str

    def conflicts(self, head: JobHead) -> bool:
        """Whether the job that was accepted under the id is another one: a submission of this is then never run."""
        return (head.type, head.digest) != self


class Prepared(NamedTuple):
    """A checked submission, ready to be appended."""

    job_id: str
    append: Append
    content: Content


class Submitter:
    """Checks submissions and appends them. With `app`, its models and key rules are applied at once."""

    def __init__(self, deployment: Deployment, app: App | None, worker_id: str) -> None:
        self._deployment = deployment
        self._app = app
        self._worker_id = worker_id
        self._producer: Producer | None = None

    def prepare(self, submission: Submission) -> Prepared:
        """Checks a submission. Raises SubmissionRefused, BodyTooLarge."""
        deployment = self._deployment
        job_id = submission.job_id if submission.job_id is not None else new_id(deployment.clock)
        now = deployment.clock.now_us()
        try:
            delay = _check(submission, job_id)
            payload = encode_payload(submission.payload)
            key = self._own_key(submission, payload) or submission.key or job_id
            inline, ref = deployment.large(payload)
        except (values.ValueRefused, BadTime) as error:
            raise SubmissionRefused(f"job {job_id}: {error}") from error
        body = e.JobSubmitted(
            submission.type,
            inline,
            ref,
            values.digest(payload),
            submission.key,
            submission.priority,
            deployment.time.after_us(delay) if delay else None,
        )
        record = e.EventRecord(e.UNNUMBERED, 0, now, 0, self._worker_id, job_id, 0, (e.Event(body),))
        raw = key.encode()
        place = partition_for(raw, deployment.partitions)
        value = deployment.codec.encode(record)
        append = Append(deployment.topics.jobs, place, raw, value, now // 1000)
        return Prepared(job_id, append, Content(body.type, body.digest))

    def send(self, prepared: Sequence[Prepared]) -> list[Receipt]:
        """Appends them all. Raises AppendRefused (surely none was accepted), OutcomeUnknown (see its message)."""
        if not prepared:
            return []
        if self._producer is None:
            self._producer = self._deployment.log.producer()
        try:
            offsets = self._producer.append([one.append for one in prepared])
        except OutcomeUnknown as error:
            raise OutcomeUnknown(
                f"{_named(prepared)} may or may not have been accepted ({error}); "
                "submitting again with the same ids is safe, since a job is accepted once"
            ) from error
        return [
            Receipt(one.job_id, one.append.partition, offset) for one, offset in zip(prepared, offsets, strict=True)
        ]

    def close(self) -> None:
        """Frees the producer."""
        if self._producer is not None:
            self._producer.close()

    def _own_key(self, submission: Submission, payload: bytes) -> str | None:
        """The key that the job type's own rules give; None without an app. The payload's model is asked."""
        if self._app is None:
            return None
        job_type = self._app.types.get(submission.type)
        if job_type is None:
            known = ", ".join(sorted(self._app.types)) or "none"
            raise SubmissionRefused(f"type {submission.type!r} is unknown; app {self._app.name!r} has: {known}")
        try:
            model = job_type.model.model_validate_json(payload)
            resource = job_type.resource_of(model)
            own = job_type.key_of(model)
            key = submission.key or own or resource
        except ValidationError as error:
            raise SubmissionRefused(f"payload of {submission.type!r}: {describe(error)}") from error
        except ValueError as error:
            raise SubmissionRefused(str(error)) from error
        if job_type.secrets and holds_secret([key, own, resource], secret_texts(payload, job_type.secrets)):
            raise SubmissionRefused(MARKED_NAME)
        if job_type.homed and submission.key is not None and submission.key != own:
            raise SubmissionRefused(foreign_key(submission.type, submission.key, own))
        if resource is not None and key is not None:
            self._check_home(resource, key)
        return key

    def _check_home(self, resource: str, key: str) -> None:
        count = self._deployment.partitions
        home, place = partition_for(resource.encode(), count), partition_for(key.encode(), count)
        if home != place:
            raise SubmissionRefused(
                f"key {key!r} belongs to partition {place}, but its resource {resource!r} is at home on {home}: "
                "leave the key out, or use the resource as the key"
            )


def _check(submission: Submission, job_id: str) -> int:
    """The delay in microseconds. Raises SubmissionRefused, BadTime."""
    _text("type", submission.type, NAME_MAX)
    if not isinstance(job_id, str) or not valid_job_id(job_id):
        raise SubmissionRefused(f"job id {job_id!r} must be 1 to 200 printable characters")
    if submission.key is not None:
        _text("key", submission.key, KEY_MAX)
    payload = submission.payload
    if type(payload) is not dict and not isinstance(payload, (BaseModel, Mapping)):
        kind = type(payload).__name__
        raise SubmissionRefused(f"payload of {job_id} must be a pydantic model or a mapping, got {kind}")
    priority = submission.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise SubmissionRefused(f"priority must be a whole number from -1000 to 1000, got {priority!r}")
    undelayed = type(submission.delay) is int and submission.delay == 0
    return 0 if undelayed else duration_us(submission.delay, "delay")


def _text(field: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > limit:
        raise SubmissionRefused(f"{field} must be a text of 1 to {limit} characters without NUL, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SubmissionRefused(f"{field} {value!r} holds a lone surrogate, which cannot be written") from error


def _named(prepared: Sequence[Prepared]) -> str:
    first = prepared[0].job_id
    return f"job {first}" if len(prepared) == 1 else f"jobs {first} to {prepared[-1].job_id} ({len(prepared)})"
