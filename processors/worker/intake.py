"""Taking in what producers and operators appended: submissions, commands, and what cannot be decoded.

Nothing of it may stop the loop or disappear: what is not understood becomes an investigation entry that keeps the
original bytes and says what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core.doubt import answer_refusal, decide_resolve
from rewindq.engine.core.names import valid_job_id
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.quarantine import decide_quarantine
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.secrets import MARKED_NAME, holds_secret, secret_texts
from rewindq.engine.ports.blobs import BlobMissing
from rewindq.engine.ports.log import Append, Record
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.kept import describe

from .home import Home
from .owner import About, Owner
from .remote import Remote

#: A due time further ahead is a mistake in units. Microseconds.
DUE_MAX = 10 * 366 * 86_400 * 1_000_000
#: Original bytes kept inside an investigation entry; larger ones go to the blob store, or are cut and said to be.
ORIGINAL_MAX = 16 * 1024


class Taken(NamedTuple):
    """What became of an input record: the job whose state changed, if any."""

    job_id: str | None
    events: tuple[e.Event, ...]


class Intake:
    """Turns input records into decisions of their partition's owner."""

    def __init__(self, deployment: Deployment, app: App) -> None:
        """`home` and `remote` are set by the worker: requests of other partitions' jobs, and replies to ours."""
        self._deployment = deployment
        self._app = app
        self._topics = deployment.topics
        self._partitions = deployment.partitions
        self.home: Home | None = None
        self.remote: Remote | None = None

    def take(self, owner: Owner, record: Record) -> Taken:
        """Takes one record in; its offset commits with the owner's turn."""
        try:
            return self._take(owner, record)
        finally:
            owner.read(record.topic, record.offset + 1)

    def _take(self, owner: Owner, record: Record) -> Taken:
        try:
            decoded = self._deployment.codec.decode(record.value)
            body = decoded.events[0].body if decoded.events else None
        except UndecodableRecord as error:
            return self._park(owner, record, f"cannot be decoded: {error}")
        job_id = decoded.job_id
        if not job_id or not valid_job_id(job_id):
            return self._park(owner, record, f"names no usable job id: {job_id!r}")
        if isinstance(body, e.JobSubmitted) and record.topic == self._topics.jobs:
            return self._submission(owner, record, decoded, job_id, body)
        if isinstance(body, e.CancelCommand | e.RetryCommand) and record.topic == self._topics.commands:
            return self._command(owner, job_id, body)
        if isinstance(body, e.QuarantineCommand | e.LiftCommand) and record.topic == self._topics.commands:
            return self.quarantine(owner, body)
        if isinstance(body, e.ResolveCommand) and record.topic == self._topics.commands:
            return self._resolve(owner, job_id, body)
        if isinstance(body, e.ResourceRequest) and record.topic == self._topics.commands and self.home is not None:
            self.home.take(owner, decoded, decoded.events[0], body)
            return Taken(None, ())
        if isinstance(body, e.ResourceReply) and record.topic == self._topics.commands and self.remote is not None:
            self.remote.take(owner, decoded, decoded.events[0], body)
            return Taken(None, ())
        if isinstance(body, e.RewindCommand) and record.topic == self._topics.commands:
            return self._rewound(owner, job_id, body)
        return self._park(owner, record, f"holds {type(body).__name__}, which does not belong on {record.topic}")

    def _submission(
        self, owner: Owner, record: Record, decoded: e.EventRecord, job_id: str, body: e.JobSubmitted
    ) -> Taken:
        job_type = self._app.types.get(body.type)
        refusal: tuple[FailureClass, str] | None = None
        resource: str | None = None
        key = body.key
        if job_type is None:
            known = ", ".join(sorted(self._app.types)) or "none"
            refusal = (
                FailureClass.VALIDATION,
                f"unknown job type {body.type!r}; this worker's app has: {known}",
            )
        else:
            try:
                raw = payload_bytes(self._deployment, body.payload, body.payload_ref)
                payload = job_type.model.model_validate_json(raw)
                resource = job_type.resource_of(payload)
                key = body.key or job_type.key_of(payload) or resource
                if holds_secret([key, resource], secret_texts(raw, job_type.secrets)):
                    key = resource = None
                    refusal = (FailureClass.VALIDATION, MARKED_NAME)
            except Exception as error:  # noqa: BLE001 - the app's validators and key rules may raise anything
                refusal = (FailureClass.VALIDATION, f"payload refused: {describe(error)}")
        now = self._deployment.clock.now_us()
        if refusal is None and body.due is not None and not 0 <= body.due <= now + DUE_MAX:
            refusal = (FailureClass.VALIDATION, f"due time {body.due} µs lies outside of the next ten years")
            body = replace(body, due=None)
        key = key or job_id
        home = partition_for(key.encode(), self._partitions)
        if body.key is not None or refusal is not None:
            home = owner.partition
        if refusal is None and resource is not None:
            refusal = self._misplaced(resource, home)
        submission = d.Submission(
            job_id,
            body,
            decoded.timestamp if 0 < decoded.timestamp <= now + DUE_MAX else now,
            record.offset,
            key,
            resource,
            home,
            refusal,
            job_type.secrets if job_type is not None else (),
        )
        known_head = owner.states.head(job_id)
        kept = owner.states.cancels.of(job_id) if known_head is None else None
        events = d.decide_submission(known_head, submission, owner.partition, now, kept)
        about = About(job_id, 0, key.encode(), resource, decoded.trace_id, decoded.correlation_id, decoded.causation_id)
        if isinstance(events[0].body, e.SubmissionForwarded):
            self._forward(owner, record, home, key)
            about = replace(about, job_id=None)
        owner.append(about, events)
        if isinstance(events[-1].body, e.MovedToInvestigation):
            self.investigate(owner, about, events[-1])
        return Taken(job_id if known_head is None else None, events)

    def _misplaced(self, resource: str, home: int) -> tuple[FailureClass, str] | None:
        place = partition_for(resource.encode(), self._partitions)
        if place == home:
            return None
        return (
            FailureClass.VALIDATION,
            f"resource {resource!r} is at home on partition {place}, but the job's key puts it on {home}; "
            "submit it without a key of its own, or give the job type key= equal to its resource",
        )

    def _forward(self, owner: Owner, record: Record, home: int, key: str) -> None:
        """Appends the submission, as it was, to its home partition, in the turn that passes over it here."""
        owner.add(Append(record.topic, home, key.encode(), record.value, record.timestamp_ms, record.headers))

    def _command(self, owner: Owner, job_id: str, body: e.CancelCommand | e.RetryCommand) -> Taken:
        head = owner.states.head(job_id)
        job = owner.states.job(job_id)
        if isinstance(body, e.CancelCommand):
            if job is None:
                return self._keep_cancel(owner, job_id, body)
            events = d.decide_cancel(job, body)
        else:
            events = d.decide_operator_retry(job, body)
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
            for partition in range(self._partitions):
                if partition != owner.partition:
                    owner.unnumbered(self._topics.commands, partition, about, event)
        return Taken(None, events)

    def _resolve(self, owner: Owner, job_id: str, body: e.ResolveCommand) -> Taken:
        """An effect's outcome on a person's word; on the trace of the job that started the call last."""
        known = owner.states.idempotency_at(body.key)
        holder = job_id if known is None else known[1].job_id
        head, job = owner.states.head(holder), owner.states.job(holder)
        events = decide_resolve(known, job, body, self._answer_refusal(body))
        if head is None or job is None:
            owner.append(About(None, 0, job_id.encode()), events)
        else:
            owner.append(About.job(holder, head, job.attempt, owner.partition, job.last_seq), events)
        return Taken(None, events)

    def _answer_refusal(self, body: e.ResolveCommand) -> str | None:
        """Why an answer cannot be recorded: checked as an effect's own is, since any producer may have sent it."""
        data, ref = body.answer, body.answer_ref
        if ref is None:
            limit = self._deployment.settings.body_limit_bytes
            if data is not None and len(data) > limit:
                return f"the answer has {len(data)} bytes, over the limit of {limit}; it belongs in the blob store"
            return None if data is None else answer_refusal(data)
        if self._deployment.blobs is None:
            return f"the answer {ref} is in a blob store, but this worker has none (--blobs)"
        try:
            return answer_refusal(self._deployment.blobs.get(ref))
        except BlobMissing as error:
            return str(error)

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

    def _park(self, owner: Owner, record: Record, reason: str) -> Taken:
        """An entry for what can't become a job; its id names where it came from, so a rewind finds it there already."""
        entry = f"{record.topic}-p{record.partition}-{record.offset}"
        if owner.states.job(entry) is not None:
            return Taken(None, ())
        original, ref = self._keep(record.value or b"")
        place = f"{record.topic} partition {record.partition} offset {record.offset}"
        body = e.MovedToInvestigation(
            FailureClass.VALIDATION,
            d.bounded(f"{place}: {reason}"),
            record.topic,
            record.offset,
            original,
            ref,
        )
        event = e.Event(body, status="fail")
        about = About(entry, 0, entry.encode())
        owner.append(about, (event,))
        self.investigate(owner, about, event)
        return Taken(None, (event,))

    def _keep(self, data: bytes) -> tuple[bytes, str | None]:
        if len(data) <= ORIGINAL_MAX:
            return data, None
        blobs = self._deployment.blobs
        return (b"", blobs.put(data)) if blobs is not None else (data[:ORIGINAL_MAX], f"cut from {len(data)} bytes")

    def investigate(self, owner: Owner, about: About, event: e.Event) -> None:
        """Puts an entry on the investigation topic, in the same turn."""
        about = replace(about, causation_id=f"p{owner.partition}@{owner.seq - 1}", key=(about.job_id or "").encode())
        owner.unnumbered(self._topics.investigation, owner.partition, about, event)


def payload_bytes(deployment: Deployment, payload: bytes | None, payload_ref: str | None) -> bytes:
    """A job's payload, from the blob store where it is there. Raises BlobMissing."""
    if payload is None and payload_ref is not None:
        if deployment.blobs is None:
            raise BlobMissing(f"payload {payload_ref} is in a blob store, but this worker has none (--blobs)")
        payload = deployment.blobs.get(payload_ref)
    return payload or b"{}"
