"""The dry-run's session: every answer comes from the recording; where the code leaves it, a divergence says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..core import decide as d
from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.aggregate import DELETE, split_changes
from ..core.claims import decide_answered
from ..core.compensate import same_intent
from ..core.partitioner import partition_for
from ..core.secrets import reveal, scrub
from ..effects.errors import AttemptEnded, BadStep, EffectBlocked, StepError
from ..effects.gate import Block, EffectCall, Gate, Recorded, Substitute, Verdict, refusal
from ..ports.blobs import Blobs
from ..ports.clock import Clock
from ..ports.store import View
from ..runtime.app import App
from ..runtime.compensations import reference
from ..runtime.context import Aggregate, CacheAnswer, Child
from ..runtime.failures import classify
from ..runtime.leasing import LeaseHandle
from ..store.newest import read_aggregate
from . import answers
from .away import RecordedAway
from .divergence import Divergence, Matcher
from .recording import Attempt, Occurred, Step
from .world import Place, request_digest_at, shown, source_state


class RecordingEnded(AttemptEnded):
    """The recording goes no further; what the handler would have done next is unknown."""


class Setting(NamedTuple):
    """What a replay session stands in: the job, the recorded attempt, and the partition's past to read from.

    `base` is the position that unrecorded reads see the state before. `bypass`: cache reads see the source's state.
    """

    job_id: str
    head: s.JobHead
    attempt: Attempt
    view: View
    base: int
    place: Place
    app: App
    clock: Clock
    blobs: Blobs | None
    secrets: list[str]
    bypass: bool = False


class ReplaySession:
    """Implements `Session` for a dry-run."""

    mode = "dry-run"

    def __init__(self, setting: Setting, steps: list[Step], tell: Callable[[Divergence], None] | None = None) -> None:
        self.setting = setting
        self.job_id = setting.job_id
        self.attempt = setting.attempt.number
        self.trace_id = setting.head.trace_id or setting.job_id
        self.key = setting.head.key
        self.matcher = Matcher(steps, tell)
        self.ended: str | None = None
        self.handler_task: object = None
        self.random = random.Random(f"{self.job_id}/{self.attempt}")  # seeded as live
        self._own: dict[str, dict[str, Any]] = {}
        self.away = RecordedAway(self)
        self._gate = Gate(setting.clock, lambda error: classify(setting.app, error), None, self)

    @property
    def token(self) -> int | None:
        """The recorded fencing token of the job's own resource."""
        return self.setting.attempt.token

    def type_of(self, handler_or_type: Callable[..., Any] | str) -> str:
        """The job type's name."""
        return self.setting.app.type_of(handler_or_type)

    def compensation(self, given: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """A compensation's name in the log; a replay runs none."""
        return reference(self.setting.app, given, args, kwargs)

    @property
    def secrets(self) -> list[str]:
        """What the job's payload marks secret, as texts."""
        return self.setting.secrets

    # --- matching -----------------------------------------------------------------------------------------------

    def take(self, name: str, kind: str, **got: Any) -> Step | None:
        """The recorded step, or None after listing that there is none. Raises RecordingEnded at its end."""
        self.alive()
        self._watch_tasks()
        step = self.matcher.take(name)
        if step is not None and step.kind == kind:
            return step
        if step is None:
            self._check_end(name)
        self.matcher.unrecorded(name, {"step": name, "kind": kind, **got})
        return None

    def alive(self) -> None:
        """Raises RecordingEnded when the replay has come to the recording's end."""
        if self.ended is not None:
            raise RecordingEnded(self.ended)

    def end(self, reason: str) -> RecordingEnded:
        """Ends the replay here."""
        self.ended = reason
        return RecordingEnded(reason)

    def _check_end(self, name: str) -> None:
        """A recording that stops before its handler did says nothing about what follows."""
        attempt = self.setting.attempt
        if not attempt.by_handler and (self.matcher.next is None or self.matcher.unordered):
            raise self.end(attempt.ends_here or f"ends here: the attempt was {attempt.outcome} before step {name}")

    def _watch_tasks(self) -> None:
        task = asyncio.current_task()
        if self.handler_task is not None and task is not self.handler_task:
            self.matcher.concurrent()

    def home_of(self, key: str) -> int:
        """The partition that a resource is at home on."""
        return partition_for(key.encode(), self.setting.place.partitions)

    def at_home(self, key: str) -> bool:
        """Whether that is the job's own."""
        return self.home_of(key) == self.setting.place.partition

    # --- state --------------------------------------------------------------------------------------------------

    async def load(self, step: str, key: str) -> Aggregate:
        """The recorded version; what this run itself has written otherwise lies over it."""
        if not self.at_home(key):
            return self.away.load(step, key)
        recorded = self.take(step, "load")
        at = None if recorded is None else recorded.find(e.StepCompleted)
        if at is None:
            found = read_aggregate(self.setting.view, key, self.setting.base - 1)
            version = found.version
        else:
            position = at.body.position
            found = s.NO_AGGREGATE if position is None else read_aggregate(self.setting.view, key, position)
            version = at.event.resource_version or 0
        data = {**found.data, **self._own.get(key, {})}
        return Aggregate(key, version, {name: value for name, value in data.items() if value is not DELETE})

    async def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Compared with the recorded write; kept for this run's own reads where it differs."""
        if not self.at_home(key):
            return self.away.save(step, key, changes, expected)
        try:
            fields, deleted = split_changes(dict(changes))
            data = values.encode(fields)
        except values.ValueRefused as error:
            raise BadStep(f"{step}: {error}", step=step) from error
        recorded = self.take(step, "save", digest=values.digest(data), expected=expected)
        at = None if recorded is None else recorded.find(e.StateChanged, e.WriteConflict, e.WriteFenced)
        if at is None:
            self._own.setdefault(key, {}).update(changes)
            return expected + 1
        if not isinstance(at.body, e.StateChanged):
            if at.body.expected != expected:
                self.matcher.found("write_differs", step, {"expected": at.body.expected}, {"expected": expected})
            raise answers.write_refusal(step, key, at)
        before = {
            "expected": at.body.parent,
            "changes": shown(at.body.changes),
            "deleted": list(at.body.deleted),
        }
        now = {"expected": expected, "changes": shown(data), "deleted": list(deleted)}
        if (at.body.parent, at.body.changes, at.body.deleted) != (expected, data, deleted):
            self.matcher.found("write_differs", step, before, now)
            self._own.setdefault(key, {}).update(_differing(dict(changes), at.body))
        return at.event.resource_version or expected + 1

    # --- effects ------------------------------------------------------------------------------------------------

    async def effect(self, call: EffectCall) -> Any:
        """Performs an effect through the gate, which this session's policy rules."""
        return await self._gate.perform(call)

    def judge(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        """The recorded answer when the request is the recorded one, else a stub, else blocked."""
        request = self.masked(request)
        refused = self._refused_then(call)
        if refused is not None:
            return Recorded(None, refused)
        step = self.take(call.step, "effect", digest=request.digest, request=shown(request.meta))
        if step is None:
            return self.without_answer(call, "the recording has no such step")
        recorded = self.recorded_request(step)
        if recorded is not None and recorded[0] != request.digest:
            self.request_differs(call, request, recorded)
            return self.without_answer(call, "the recording has another request for this step")
        self._check_key(step, request)
        refused = self._refused_by_home(call, request, step)
        return self.answer(call, step) if refused is None else Recorded(None, refused)

    def masked(self, request: d.EffectRequest) -> d.EffectRequest:
        """The request without the payload's secrets in what people see of it."""
        if request.meta is None:
            return request
        return request._replace(meta=scrub(request.meta, self.setting.secrets))

    def request_differs(self, call: EffectCall, request: d.EffectRequest, recorded: tuple[str, bytes | None]) -> None:
        """Lists that the code asks for something else than was recorded."""
        before = {"digest": recorded[0], "request": shown(recorded[1])}
        now = {"digest": request.digest, "request": shown(request.meta)}
        self.matcher.found("request_differs", call.step, before, now)

    def without_answer(self, call: EffectCall, reason: str) -> Verdict:
        """A stub where the app has one, else blocked."""
        stub = self.setting.app.stubs.get(call.name)
        return Block(f"{reason}, and the app has no stub for it") if stub is None else Substitute(stub)

    def recorded_request(self, step: Step) -> tuple[str, bytes | None] | None:
        """The request's digest and its short form, as far as the past knows them."""
        conflict, started, claimed = (
            step.find(kind) for kind in (e.IdempotencyConflict, e.EffectStarted, e.ClaimRequested)
        )
        if conflict is not None:
            return str(conflict.body.got_digest), None
        if started is not None:
            return str(started.body.request_digest), started.body.request
        if claimed is not None:
            return str(claimed.body.request_digest), None
        at = step.outcome
        digest = None if at is None else request_digest_at(self.setting.view, at.body.key, at.seq)
        return None if digest is None else (digest, None)

    def _check_key(self, step: Step, request: d.EffectRequest) -> None:
        key = step.events[-1].body.key
        if not same_intent(key, request.key):
            self.matcher.found("key_differs", request.step, {"key": key}, {"key": request.key})

    def answer(self, call: EffectCall, step: Step) -> Verdict:
        """The recorded outcome; where the attempt was cut off in the call, what a person told of it later.

        Raises RecordingEnded where there is neither.
        """
        at, told = step.outcome, step.resolved
        if told is not None and told.body.outcome == s.DONE and not self.outcome_known(step):
            return Recorded(self.stored(told.body.answer, told.body.answer_ref))
        if at is None or not self.outcome_known(step):
            raise self.end(f"ends here: step {step.name} started, outcome unknown")
        if isinstance(at.body, e.EffectSucceeded | e.EffectSkipped):
            return Recorded(self.stored(at.body.answer, at.body.answer_ref))
        failure, missing = answers.effect_failure(call, at, self.setting.secrets)
        if missing is not None:
            self.matcher.found("error_class_missing", step.name, missing, None)
        return Recorded(None, failure)

    def outcome_known(self, step: Step) -> bool:
        """Whether the handler saw an outcome then; a doubt that the attempt's end left behind it did not see."""
        at = step.outcome
        if at is None:
            return False
        left_behind = isinstance(at.body, e.EffectInDoubt) and at.body.duration is None
        return not left_behind or self.setting.attempt.by_handler

    def stored(self, inline: bytes | None, ref: str | None) -> bytes | None:
        """A recorded body, fetched from the blob store where it is large."""
        if ref is None:
            return None if inline is None else reveal(inline, self.setting.secrets)
        if self.setting.blobs is None:
            raise EffectBlocked(f"the recorded answer {ref} is in a blob store, and none is set (--blobs)")
        return reveal(self.setting.blobs.get(ref), self.setting.secrets)

    def _refused_then(self, call: EffectCall) -> StepError | None:
        """A refusal leaves no event of its own: it shows in how the attempt ended."""
        attempt = self.setting.attempt
        if self.matcher.knows(call.step) or attempt.failed_step != call.step or attempt.end is None:
            return None
        self.alive()
        return answers.attempt_refusal(call.step, attempt.end.body, call.function)

    def _refused_by_home(self, call: EffectCall, request: d.EffectRequest, step: Step) -> StepError | None:
        """The refusal of a global key's home, or the failure to find out what became of its call."""
        if step.claim is None or step.find(e.EffectStarted) is not None or step.outcome is not None:
            return None
        decision = decide_answered(step.claim.body, request, self.job_id)
        if isinstance(decision, d.Refused):
            return refusal(decision, call.step)
        attempt = self.setting.attempt
        if attempt.failed_step != call.step or attempt.end is None:
            return None
        return answers.attempt_refusal(call.step, attempt.end.body, call.function)

    # --- the rest -----------------------------------------------------------------------------------------------

    def decide(self, step: str, value: bytes, because: bytes | None) -> None:
        """Compared with the recorded decision; the code goes on with its own."""
        value = scrub(value, self.setting.secrets)
        because = None if because is None else scrub(because, self.setting.secrets)
        recorded = self.take(step, "decision", digest=values.digest(value))
        at = None if recorded is None else recorded.find(e.DecisionRecorded)
        if at is not None and (at.body.value, at.body.because) != (value, because):
            before = {"value": shown(at.body.value), "because": shown(at.body.because)}
            now = {"value": shown(value), "because": shown(because)}
            self.matcher.found("decision_differs", step, before, now)

    async def cache(self, step: str, source: str, key: str) -> CacheAnswer:
        """The recorded read, or with `bypass` the source's state of that moment."""
        recorded = self.take(step, "cache", source=source, key=key)
        at = None if recorded is None else recorded.find(e.CacheRead)
        if self.setting.bypass or at is None:
            found = self.source_of(step, source, key, self.setting.base - 1 if at is None else at.seq)
            if found is not None:
                return found
        if at is None:
            return CacheAnswer(False)
        return recorded_read(at, self.setting.secrets)

    def source_of(self, step: str, source: str, key: str, seq: int) -> CacheAnswer | None:
        """The state that a cache stands for, None after listing that its key names no aggregate."""
        kind, mark, identity = key.partition(":")
        if not mark or not kind or not identity:
            got = f"the key {key!r} of cache {source!r} is not of the form type:id, so its source is not known"
            self.matcher.found("cache_source_unknown", step, {"source": source, "key": key}, got)
            return None
        aggregate = self.aggregate_at(key, seq)
        exists, value = source_state(aggregate, source)
        return CacheAnswer(exists, value, str(aggregate.version))

    def aggregate_at(self, key: str, seq: int) -> s.Aggregate:
        """An aggregate as of a position."""
        return read_aggregate(self.setting.view, key, seq)

    async def acquire(self, step: str, resource: str, ttl: float, wait: float) -> LeaseHandle:
        """The recorded token, or the recorded refusal."""
        if not self.at_home(resource):
            return self.away.acquire(step, resource)
        if resource == self.setting.head.resource and self.token is not None:
            return LeaseHandle(resource, self.token)
        recorded = self.take(step, "lease", resource=resource)
        if recorded is None:
            return LeaseHandle(resource, 0)
        refused, acquired = answers.lease_refusal(recorded, resource), recorded.find(e.LeaseAcquired)
        if refused is not None:
            raise refused
        if acquired is None:
            raise self.end(f"ends here: step {step} started, outcome unknown")
        return LeaseHandle(resource, acquired.event.fencing_token or 0)

    def release(self, lease: LeaseHandle) -> None:
        """Nothing is held, so nothing is given back."""

    def now_us(self, step: str) -> int:
        """The recorded time."""
        recorded = self.take(step, "now")
        at = None if recorded is None else recorded.find(e.StepCompleted)
        if at is None or at.body.value is None:
            started = self.setting.attempt.started
            return 0 if started is None else started.record.timestamp
        return int(values.decode(at.body.value))

    def note(self, step: str, fields: bytes) -> None:
        """Only that there is a note counts, not what it says."""
        self.take(step, "note")

    def enqueue(self, step: str, child: Child) -> None:
        """Compared with the recorded child; nothing is enqueued."""
        digest = values.digest(child.payload)
        recorded = self.take(step, "enqueue", digest=digest)
        at = None if recorded is None else recorded.find(e.ChildEnqueued)
        now = {"job_id": child.job_id, "type": child.type, "digest": digest}
        if at is not None:
            before = {"job_id": at.body.child_id, "type": at.body.type, "digest": at.body.digest}
            if before != now:
                self.matcher.found("child_differs", step, before, now)


def recorded_read(at: Occurred, secrets: list[str]) -> CacheAnswer:
    """A recorded cache read."""
    body = at.body
    value = None if body.value is None else values.decode(reveal(body.value, secrets))
    return CacheAnswer(body.hit, value, body.version, body.age)


def _differing(changes: dict[str, Any], recorded: e.StateChanged) -> dict[str, Any]:
    """The fields of a write that were not written so then."""
    then = values.decode(recorded.changes)
    same = {
        name
        for name, value in changes.items()
        if (name in recorded.deleted if value is DELETE else name in then and then[name] == value)
    }
    return {name: value for name, value in changes.items() if name not in same}
