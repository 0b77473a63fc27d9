"""Taking in what producers and operators appended: submissions, commands, and what cannot be decoded.

Nothing of it may stop the loop or disappear: what is not understood becomes an investigation entry that keeps the
original bytes and says what is wrong.
"""

from __future__ import annotations

from msgspec.structs import replace
from pydantic import BaseModel

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.inputs import names_refusal, payload_refusal
from rewindq.engine.core.names import valid_job_id
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.secrets import MARKED_NAME, holds_secret, secret_texts
from rewindq.engine.core.sizes import INPUT_MAX, too_large
from rewindq.engine.core.times import DURATION_MAX_US
from rewindq.engine.core.unique import Unique
from rewindq.engine.ports.blobs import BlobMissing
from rewindq.engine.ports.log import Append, Record
from rewindq.engine.runtime.app import App, JobType
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.kept import describe
from rewindq.engine.runtime.rules import foreign_key

from .home import Home
from .operators import Operators
from .owner import About, Owner, Taken
from .parking import Parking
from .remote import Remote
from .unknown import UnknownTypes

#: A due time further ahead is a mistake in units; a day beyond the longest delay, which was counted from a time that is
#: told with a margin. Microseconds.
DUE_MAX = DURATION_MAX_US + 86_400 * 1_000_000
#: Original bytes kept inside an investigation entry; larger ones go to the blob store, or are cut and said to be.
ORIGINAL_MAX = 16 * 1024
_CLAIMS = (e.ClaimRequest, e.ClaimReply, e.SettleRequest)


class Intake:
    """Turns input records into decisions of their partition's owner."""

    def __init__(self, deployment: Deployment, app: App) -> None:
        """`home`, `remote` and `parking` are set by the worker: they come later than the intake."""
        self.unknown = UnknownTypes(app)
        self._deployment = deployment
        self._app = app
        self._topics = deployment.topics
        self._partitions = deployment.partitions
        self.home: Home | None = None
        self.remote: Remote | None = None
        self.parking: Parking | None = None
        self.operators = Operators(deployment, self)

    def take(self, owner: Owner, record: Record) -> Taken:
        """Takes one record in; its offset commits with the owner's turn."""
        try:
            return self._take(owner, record)
        finally:
            owner.read(record.topic, record.offset + 1)

    def _take(self, owner: Owner, record: Record) -> Taken:
        size = len(record.value or b"")
        if size > INPUT_MAX:
            return self._park(owner, record, too_large("the record", size, INPUT_MAX))
        try:
            decoded = self._deployment.codec.decode(record.value)
            body = decoded.events[0].body if decoded.events else None
        except UndecodableRecord as error:
            return self._park(owner, record, f"cannot be decoded: {error}")
        job_id = decoded.job_id
        if not job_id or not valid_job_id(job_id):
            return self._park(owner, record, f"names no usable job id: {job_id!r}")
        if owner.killers and record.topic == self._topics.jobs and record.offset in owner.killers:
            return self._deadly(owner, record, decoded)
        if isinstance(body, e.JobSubmitted) and record.topic == self._topics.jobs:
            refusal = names_refusal(body)
            if refusal is not None:
                return self._park(owner, record, f"holds a submission of {job_id}, but {refusal}")
            return self._submission(owner, record, decoded, job_id, body)
        if record.topic == self._topics.commands:
            taken = self.operators.take(owner, decoded, job_id) or self._asked(owner, record, decoded)
            if taken is not None:
                return taken
        return self._park(owner, record, f"holds {type(body).__name__}, which does not belong on {record.topic}")

    def _asked(self, owner: Owner, record: Record, decoded: e.EventRecord) -> Taken | None:
        """What another partition asks or answers; None where the record is no such thing."""
        home, remote, event = self.home, self.remote, decoded.events[0]
        body = event.body
        if home is None or remote is None:
            return None
        if isinstance(body, e.ResourceRequest):
            home.take(owner, decoded, event, body)
        elif isinstance(body, e.ResourceReply):
            remote.take(owner, decoded, event, body)
        elif isinstance(body, e.LeaseProbe):
            unreadable = remote.deadlocks.take(owner, decoded, body, home)
            if unreadable is not None:
                return self._park(owner, record, unreadable)
        elif isinstance(body, _CLAIMS):
            remote.claims.take(owner, decoded, event, body, home)
        else:
            return None
        return Taken(None, ())

    def _submission(
        self, owner: Owner, record: Record, decoded: e.EventRecord, job_id: str, body: e.JobSubmitted
    ) -> Taken:
        known_head = owner.states.head(job_id)
        kept = owner.states.cancels.of(job_id) if known_head is None else None
        job_type = self._app.types.get(body.type)
        if known_head is None and kept is None and (job_type is None or self.unknown.holds(owner.partition, job_id)):
            return self._hold(owner, record, decoded, job_id, body)
        key, resource, refusal, unique = body.key, None, None, None
        if job_type is not None:
            key, resource, refusal, unique = self._keys(owner, job_id, job_type, body)
        now = self._deployment.time.now_us()
        if refusal is None and body.due is not None and not 0 <= body.due <= now + DUE_MAX:
            refusal = (FailureClass.VALIDATION, f"due time {body.due} µs lies outside of the next ten years")
            body = replace(body, due=None)
        key = key or job_id
        home = partition_for(key.encode(), self._partitions)
        if refusal is not None or job_type is None or (body.key is not None and not job_type.homed):
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
            unique,
        )
        events = d.decide_submission(known_head, submission, owner.partition, now, kept)
        about = About(job_id, 0, key.encode(), resource, decoded.trace_id, decoded.correlation_id, decoded.causation_id)
        if isinstance(events[0].body, e.SubmissionForwarded):
            self._forward(owner, record, home, key)
            about = replace(about, job_id=None)
        owner.append(about, events)
        if isinstance(events[-1].body, e.MovedToInvestigation):
            self.investigate(owner, about, events[-1])
        return Taken(job_id if known_head is None else None, events)

    def _keys(
        self, owner: Owner, job_id: str, job_type: JobType, body: e.JobSubmitted
    ) -> tuple[str | None, str | None, tuple[FailureClass, str] | None, Unique | None]:
        """The key, the resource and the unique key that the type's rules give, or why the payload is refused."""
        try:
            raw = payload_bytes(self._deployment, body.payload, body.payload_ref)
            refusal = payload_refusal(raw, body)
            if refusal is not None:
                return body.key, None, (FailureClass.VALIDATION, refusal), None
            payload = job_type.model.model_validate_json(raw)
            resource, own = job_type.resource_of(payload), job_type.key_of(payload)
            unique = None if job_type.unique is None else self._unique(owner, job_id, job_type, payload)
            names = [body.key, own, resource, None if unique is None else unique.key]
            if job_type.secrets and holds_secret(names, secret_texts(raw, job_type.secrets)):
                return None, None, (FailureClass.VALIDATION, MARKED_NAME), None
            if job_type.homed and body.key is not None and body.key != own:
                return body.key, resource, (FailureClass.VALIDATION, foreign_key(body.type, body.key, own)), None
            return body.key or own or resource, resource, None, unique
        except Exception as error:  # noqa: BLE001 - the app's validators and key rules may raise anything
            return body.key, None, (FailureClass.VALIDATION, f"payload refused: {describe(error)}"), None

    def _unique(self, owner: Owner, job_id: str, job_type: JobType, payload: BaseModel) -> Unique | None:
        key = job_type.unique_of(payload)
        if key is None:
            return None
        window = None if job_type.unique_for is None else int(job_type.unique_for * 1_000_000)
        return Unique(job_id, key, window, owner.states.unique(job_type.name, key))

    def unique_again(self, owner: Owner, job_id: str, head: s.JobHead | None) -> Unique | None:
        """The unique key of a job that was accepted before; None where its payload gives none by now."""
        job_type = None if head is None else self._app.types.get(head.type)
        if head is None or job_type is None or job_type.unique is None:
            return None
        try:
            raw = payload_bytes(self._deployment, head.payload, head.payload_ref)
            return self._unique(owner, job_id, job_type, job_type.model.model_validate_json(raw))
        except Exception:  # noqa: BLE001 - its attempt will fail in the same way, and tell it as any failure
            return None

    def _as_given(
        self, record: Record, decoded: e.EventRecord, job_id: str, body: e.JobSubmitted, now: int
    ) -> d.Submission:
        """A submission before any rule of its type is applied."""
        submitted_at = decoded.timestamp if 0 < decoded.timestamp <= now + DUE_MAX else now
        key = body.key or job_id
        return d.Submission(job_id, body, submitted_at, record.offset, key, None, record.partition, None)

    # --- types that are not known here ---

    def _hold(self, owner: Owner, record: Record, decoded: e.EventRecord, job_id: str, body: e.JobSubmitted) -> Taken:
        submission = self._as_given(record, decoded, job_id, body, self._deployment.time.now_us())
        event = d.decide_hold(owner.states.held_submission(job_id), submission, record.value or b"")
        about = About(
            job_id, 0, submission.key.encode(), None, decoded.trace_id, decoded.correlation_id, decoded.causation_id
        )
        owner.append(about, (event,))
        if isinstance(event.body, e.SubmissionHeld):
            self.unknown.held(owner.partition, job_id, body.type)
        return Taken(None, (event,))

    def release(self, owner: Owner, job_id: str, reason: str) -> Taken:
        """Takes a held submission in by its type's rules, which are known by now. Raises UndecodableRecord."""
        record, decoded, body = self._released(owner, job_id, reason)
        return self._submission(owner, record, decoded, job_id, body)

    def end_hold(self, owner: Owner, job_id: str, reason: str, refusal: tuple[FailureClass, str] | None) -> Taken:
        """Makes a job of a held submission without its type's rules: it must not run, `refusal` parks it.

        Raises UndecodableRecord.
        """
        return self._unread(owner, *self._released(owner, job_id, reason), refusal)

    def _deadly(self, owner: Owner, record: Record, decoded: e.EventRecord) -> Taken:
        """A submission that kills whoever reads its payload."""
        body = decoded.events[0].body
        assert isinstance(body, e.JobSubmitted)
        refusal = (FailureClass.ATTEMPT_LOST, owner.killers.pop(record.offset))
        return self._unread(owner, record, decoded, body, refusal)

    def _unread(
        self,
        owner: Owner,
        record: Record,
        decoded: e.EventRecord,
        body: e.JobSubmitted,
        refusal: tuple[FailureClass, str] | None,
    ) -> Taken:
        job_id = decoded.job_id or ""
        now = self._deployment.time.now_us()
        submission = self._as_given(record, decoded, job_id, body, now)._replace(refusal=refusal)
        events = d.decide_submission(owner.states.head(job_id), submission, owner.partition, now)
        about = About(job_id, 0, submission.key.encode(), None, decoded.trace_id, decoded.correlation_id)
        owner.append(about, events)
        if isinstance(events[-1].body, e.MovedToInvestigation):
            self.investigate(owner, about, events[-1])
        return Taken(job_id, events)

    def held_for_later(self, owner: Owner, job_id: str) -> bool:
        """Whether a held submission is not due yet. Raises UndecodableRecord."""
        held = owner.states.held_submission(job_id)
        assert held is not None
        due = getattr(self._deployment.codec.decode(held.original).events[0].body, "due", None)
        return due is not None and 0 < due - self._deployment.time.now_us() < DUE_MAX

    def _released(self, owner: Owner, job_id: str, reason: str) -> tuple[Record, e.EventRecord, e.JobSubmitted]:
        held = owner.states.held_submission(job_id)
        assert held is not None
        decoded = self._deployment.codec.decode(held.original)
        body = decoded.events[0].body
        assert isinstance(body, e.JobSubmitted)
        about = About(job_id, 0, (body.key or job_id).encode(), None, decoded.trace_id, decoded.correlation_id)
        about = replace(about, causation_id=f"p{owner.partition}@{held.held_seq}")
        owner.append(about, (e.Event(e.SubmissionReleased(reason)),))
        self.unknown.released(owner.partition, job_id)
        place = (self._topics.jobs, owner.partition, held.source_offset, decoded.timestamp // 1000)
        return Record(*place, None, held.original), decoded, body

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
        """Puts the entry of the event that was appended last onto the investigation topic, behind its turn."""
        if self.parking is not None:
            self.parking.add(owner, about, event)


def payload_bytes(deployment: Deployment, payload: bytes | None, payload_ref: str | None) -> bytes:
    """A job's payload, from the blob store where it is there. Raises BlobMissing."""
    if payload is None and payload_ref is not None:
        if deployment.blobs is None:
            raise BlobMissing(f"payload {payload_ref} is in a blob store, but this worker has none (--blobs)")
        payload = deployment.blobs.get(payload_ref)
    return payload or b"{}"
