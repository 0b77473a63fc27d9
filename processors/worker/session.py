"""The live mode's session: a handler's steps become decisions of its partition's owner."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.claims import decide_answered
from rewindq.engine.core.compensate import being_undone, current_key, has_compensation
from rewindq.engine.core.global_keys import is_global
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.secrets import hide, reveal, scrub, scrub_text
from rewindq.engine.core.writes import SaveRefused, SaveRequest, decide_save
from rewindq.engine.effects.errors import AttemptEnded, BadStep, StepLost, WriteRefused
from rewindq.engine.effects.gate import EffectCall, Gate, PermitJournaled
from rewindq.engine.effects.threads import Threads
from rewindq.engine.runtime.cache import read_cache
from rewindq.engine.runtime.compensations import reference
from rewindq.engine.runtime.context import Aggregate, CacheAnswer, Child, encode_step
from rewindq.engine.runtime.deployment import BodyTooLarge
from rewindq.engine.runtime.failures import classify, explain
from rewindq.engine.runtime.kept import full_name, keep, trace_of
from rewindq.engine.runtime.leasing import LeaseHandle

from .leases import Leases
from .owner import About
from .run import Run

if TYPE_CHECKING:
    from .attempts import Attempts


class LiveSession:
    """Implements `Session` and the gate's `Journal` for one attempt."""

    mode = "live"

    def __init__(self, run: Run, attempts: Attempts, threads: Threads) -> None:
        self._run = run
        self._attempts = attempts
        self._deployment = attempts.deployment
        self._leases: Leases = attempts.leases
        self._remote = attempts.remote
        self._claims = attempts.remote.claims
        #: What the homes of global keys have answered, by step.
        self._answers: dict[str, e.ClaimReply] = {}
        self.job_id = run.job_id
        self.attempt = run.attempt
        self.trace_id = run.head.trace_id or run.job_id
        self.key = run.head.key
        self.token = run.token
        self._threads = threads

    @property
    def secrets(self) -> list[str]:
        """What the job's payload marks secret, as texts."""
        return self._run.secrets

    @cached_property
    def _random(self) -> random.Random:
        return random.Random(f"{self.job_id}/{self.attempt}")

    @property
    def random(self) -> random.Random:
        """Seeded by the job and the attempt."""
        self._alive()
        return self._random

    @cached_property
    def _gate(self) -> Gate:
        app = self._attempts.app
        return Gate(self._run.clock, lambda error: classify(app, error), self, PermitJournaled(), self._threads)

    # --- state ---

    async def load(self, step: str, key: str) -> Aggregate:
        """Reads an aggregate's newest version, wherever it is at home."""
        self._alive()
        if not self._at_home(key):
            return await self._remote.load(self._run, step, key)
        found = self._run.owner.states.aggregate(key)
        self._run.record(
            e.Event(
                e.StepCompleted("load", found.seq),
                step=step,
                resource=key,
                resource_version=found.version,
                elapsed=self._elapsed(),
            )
        )
        return Aggregate(key, found.version, dict(found.data))

    async def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Writes fields on an expected version."""
        self._alive()
        self._sure_of_leases()
        if not self._at_home(key):
            return await self._remote.save(self._run, step, key, changes, expected)
        states = self._run.owner.states
        current = states.aggregate(key)
        token = self._run.token if key == self._run.head.resource else self._leases.token_of(self._run, key)
        request = SaveRequest(key, step, changes, expected, token)
        try:
            decision = decide_save(current, states.lease(key) if token is not None else None, request, current.writer)
        except values.ValueRefused as error:
            raise BadStep(f"{step}: {error}", step=step) from error
        if isinstance(decision, SaveRefused):
            self._run.flush((decision.event,))
            self._attempts.wake()
            raise WriteRefused.found(key, decision.current, expected, decision.reason, step)
        self._run.flush((decision,))
        return expected + 1

    # --- effects: the gate's journal ---

    async def effect(self, call: EffectCall) -> Any:
        """Performs an effect through the gate."""
        self._alive()
        self._sure_of_leases()
        try:
            return await self._gate.perform(call)
        finally:
            if is_global(call.key):
                self._claims.give_back(self._run, call.step)

    def current_key(self, key: str) -> str:
        """The key under which the effect is called now."""
        return current_key(key, self._run.owner.states.idempotency_at)

    def decide_effect(self, request: d.EffectRequest) -> d.EffectDecision:
        """What the recorded state allows."""
        self._alive()
        answer = self._answers.get(request.step)
        if answer is not None:
            return self._decided(decide_answered(answer, request, self.job_id))
        request = self._prepared(request)
        lookup = self._run.owner.states.idempotency_at
        known = lookup(request.key)
        undo = being_undone(request.key, lookup) if known is not None and has_compensation(known[1]) else None
        if undo is not None:
            return self._decided(d.decide_undone(request, undo))
        holder_runs = known is not None and self._holder_runs(known[1])
        return self._decided(d.decide_effect(known, request, self.job_id, holder_runs))

    async def claim(self, request: d.EffectRequest) -> tuple[d.EffectRequest, d.EffectDecision]:
        """What the home of a global key allows, and the request under the key that it names."""
        request = self._prepared(request)
        answer = self._answers[request.step] = await self._claims.ask(self._run, request)
        self._sure_of_leases()
        request = request._replace(key=answer.key)
        return request, self.decide_effect(request)

    def _prepared(self, request: d.EffectRequest) -> d.EffectRequest:
        """The request as it is recorded."""
        if self._run.secrets and request.meta is not None:
            request = request._replace(meta=scrub(request.meta, self._run.secrets))
        if request.compensation is not None:
            request = self._with_compensation(request, request.compensation)
        self._run.settle(request.key)
        unstable = d.unstable_key(self._run.owner.states.open_effects(self.job_id), request)
        if unstable is not None:
            self._run.record(unstable)
        return request

    def _decided(self, decision: d.EffectDecision) -> d.EffectDecision:
        if isinstance(decision, d.Answered):
            self._run.record(decision.skipped)
        elif isinstance(decision, d.Refused) and decision.event is not None:
            self._run.flush((decision.event,))
            self._attempts.wake()
        return decision

    def _with_compensation(self, request: d.EffectRequest, given: bytes) -> d.EffectRequest:
        """The request with what undoes it as it is recorded: in the blob store where it is large."""
        if scrub(given, self._run.secrets) != given:
            raise BadStep(
                f"effect {request.name!r}: compensate= records the arguments, and one holds a secret of the payload; "
                "pass a reference, and let the compensation look the secret up",
                step=request.step,
            )
        try:
            inline, ref = self._deployment.large(given)
        except BodyTooLarge as error:
            raise BadStep(f"effect {request.name!r}: what undoes it: {error}", step=request.step) from error
        return request._replace(compensation=inline, compensation_ref=ref)

    def _holder_runs(self, known: s.Idempotency) -> bool:
        if known.job_id == self.job_id:
            return known.attempt == self.attempt
        holder = self._run.owner.states.job(known.job_id)
        return holder is not None and holder.status == s.RUNNING and holder.attempt == known.attempt

    async def other_call_goes_on(self, request: d.EffectRequest) -> bool:
        """Returns when the job that makes the call under the key has got on; False when there is none to wait for."""
        known = self._run.owner.states.idempotency(request.key)
        holder = None if known is None else self._attempts.running.get(known.job_id)
        if holder is None or holder is self._run:
            return False
        await holder.decided()
        self._alive()
        return True

    async def start(self, request: d.EffectRequest, decision: d.Call) -> None:
        """Returns when `EffectStarted` is durable."""
        self._alive()
        # What came before, a look-up or a wait for another call, may have taken longer than a lease lives.
        self._sure_of_leases()
        self._run.flush((decision.started,))
        durable = self._run.owner.durable()
        self._attempts.wake()
        await durable
        self._alive()
        if self._lost_lease():
            self.failed(request, StepLost("a lease was lost before the call"), FailureClass.CONCURRENCY, 0)
            raise AttemptEnded("a lease was lost")

    def answer_of(self, record: s.Idempotency) -> bytes | None:
        """A recorded answer's bytes."""
        return self.stored(record.answer, record.answer_ref)

    def stored(self, inline: bytes | None, ref: str | None) -> bytes | None:
        """A recorded body, fetched from the blob store where it is large. Raises BlobMissing."""
        if ref is not None:
            assert self._deployment.blobs is not None
            inline = self._deployment.blobs.get(ref)
        return None if inline is None else reveal(inline, self._run.secrets)

    def succeeded(self, request: d.EffectRequest, answer: bytes | None, duration_ms: int, evidence: str) -> None:
        """Records the outcome."""
        inline, ref = self.kept(None if answer is None else hide(answer, self._run.secrets))
        self._outcome(request, e.EffectSucceeded(request.key, inline, ref, duration_ms, evidence), "success")

    def kept(self, answer: bytes | None) -> tuple[bytes | None, str | None]:
        """An answer inline or as a reference. Raises values.ValueRefused where it is too large for both."""
        try:
            return self._deployment.large(answer)
        except BodyTooLarge as error:
            raise values.ValueRefused("", str(error)) from error

    def failed(self, request: d.EffectRequest, error: BaseException, kind: FailureClass, duration_ms: int) -> str:
        """Records that the call was surely not done. The end of the exception's traceback."""
        reason = d.bounded(scrub_text(d.text_of(error), self._run.secrets))
        rule = explain(self._attempts.app, error)[1]
        body = e.EffectFailed(
            request.key, kind, reason, full_name(error), duration_ms, keep(error, rule, self._run.secrets)
        )
        self._outcome(request, body, "fail")
        return trace_of(error)

    def in_doubt(self, request: d.EffectRequest, reason: str, duration_ms: int | None) -> None:
        """Records that nobody knows."""
        reason = d.bounded(scrub_text(reason, self._run.secrets))
        self._outcome(request, e.EffectInDoubt(request.key, reason, duration_ms), "fail")

    def _outcome(self, request: d.EffectRequest, body: e.Body, status: e.Status) -> None:
        if self._run.closed and self._run.overdue is None:
            raise AttemptEnded("the attempt ended while the call was under way")
        event = e.Event(body, step=request.step, status=status, side_effect=request.name, elapsed=self._elapsed())
        if is_global(request.key):
            self._claims.outcome(self._run, event)
        else:
            self._run.record(event)
        self._attempts.touched(self._run)

    # --- the rest ---

    def type_of(self, handler_or_type: Callable[..., Any] | str) -> str:
        """The job type's name."""
        return self._attempts.app.type_of(handler_or_type)

    def compensation(self, given: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """A compensation's name in the log."""
        return reference(self._attempts.app, given, args, kwargs)

    def decide(self, step: str, value: bytes, because: bytes | None) -> None:
        """Records a decision."""
        self._alive()
        scrubbed = None if because is None else scrub(because, self._run.secrets)
        self._record(step, e.DecisionRecorded(scrub(value, self._run.secrets), scrubbed))

    async def cache(self, step: str, source: str, key: str) -> CacheAnswer:
        """Reads a cache source."""
        self._alive()
        answer = await read_cache(self._attempts.app, source, key, step)
        self._alive()
        value = None if not answer.hit else hide(encode_step(step, answer.value), self._run.secrets)
        self._record(step, e.CacheRead(source, key, answer.hit, answer.version, answer.age_ms, value))
        return answer

    def acquire(self, step: str, resource: str, ttl: float, wait: float) -> Awaitable[LeaseHandle]:
        """Acquires a lease."""
        self._alive()
        leases = self._leases if self._at_home(resource) else self._remote
        return leases.acquire(self._run, step, resource, ttl, wait)

    def release(self, lease: LeaseHandle) -> None:
        """Gives it back."""
        if not self._remote.release(self._run, lease):
            self._leases.release(self._run, lease)

    def now_us(self, step: str) -> int:
        """The wall time, recorded."""
        self._alive()
        now = self._run.clock.now_us()
        self._record(step, e.StepCompleted("now", None, values.encode(now)))
        return now

    def note(self, step: str, fields: bytes) -> None:
        """Records a note."""
        self._alive()
        self._record(step, e.NoteRecorded(scrub(fields, self._run.secrets)))

    def enqueue(self, step: str, child: Child) -> None:
        """Enqueues a child job with this step, in one transaction."""
        self._alive()
        self._sure_of_leases()
        digest = values.digest(child.payload)
        inline, ref = self._deployment.large(child.payload)
        key = child.key or child.job_id
        due = self._deployment.time.after_us(child.delay) if child.delay else None
        submitted = e.JobSubmitted(child.type, inline, ref, digest, child.key, 0, due, self.job_id)
        self._run.flush((e.Event(e.ChildEnqueued(child.job_id, child.type, digest), step=step),))
        owner = self._run.owner
        about = About(child.job_id, 0, key.encode(), None, self.trace_id, None, f"p{owner.partition}@{owner.seq - 1}")
        partition = partition_for(key.encode(), self._deployment.partitions)
        owner.unnumbered(self._deployment.topics.jobs, partition, about, e.Event(submitted))
        self._attempts.wake()

    def _record(self, step: str, body: e.Body) -> None:
        self._run.record(e.Event(body, step=step, elapsed=self._elapsed()))

    def _elapsed(self) -> int:
        return int((self._run.clock.monotonic() - self._run.began) * 1_000_000)

    def _alive(self) -> None:
        if self._run.closed:
            raise AttemptEnded(f"attempt {self.attempt} of {self.job_id} is over")

    def _sure_of_leases(self) -> None:
        """A worker that may have lost a lease starts no effect, writes nothing and enqueues nothing."""
        if self._lost_lease():
            raise AttemptEnded("a lease was lost")

    def _lost_lease(self) -> bool:
        return self._leases.any_lost(self._run) or self._remote.any_lost(self._run)

    def _at_home(self, key: str) -> bool:
        return partition_for(key.encode(), self._deployment.partitions) == self._run.owner.partition
