"""The fork's session: recorded answers up to the fork point, from there the branch's own state and guarded effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import decide as d
from ..core import events as e
from ..core import state as s
from ..core import values
from ..core.compensate import current_key
from ..core.retry import FailureClass
from ..core.secrets import hide, scrub, scrub_text
from ..core.writes import SaveRefused, SaveRequest, decide_save
from ..effects.call import encode_answer
from ..effects.errors import BadStep, EffectBlocked, EffectConflict, StepError, WriteRefused
from ..effects.gate import EffectCall, Recorded, Substitute, Verdict
from ..runtime.context import Aggregate, CacheAnswer, Child
from ..runtime.failures import explain
from ..runtime.kept import keep
from ..runtime.leasing import LeaseHandle
from .away import ForkAway
from .divergence import Divergence
from .execution import Finished
from .recording import Occurred, Step
from .session import ReplaySession, Setting, recorded_read
from .writer import BranchWriter


class ForkSession(ReplaySession):
    """Implements `Session` for a fork. What comes before the base is the recording's, as long as it matches."""

    mode = "fork"

    def __init__(self, setting: Setting, writer: BranchWriter) -> None:
        before = [step for step in setting.attempt.steps if step.first < setting.base]
        super().__init__(setting, before, self._diverged)
        self._writer = writer
        self._states = writer.states
        self._secrets = setting.secrets
        self._later = {step.name: step for step in setting.attempt.steps if step.first >= setting.base}
        self._verdicts: dict[str, Verdict] = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self._token = setting.attempt.token
        self.away = ForkAway(self, writer)
        if setting.attempt.started is None or setting.attempt.started.seq >= setting.base:
            self._start()

    def _start(self) -> None:
        """The attempt begins in the branch."""
        head, states = self.setting.head, self._states
        job = states.job(self.job_id)
        assert job is not None
        lease = states.lease(head.resource) if head.resource is not None else None
        timeout = None if self.setting.attempt.started is None else self.setting.attempt.started.body.timeout
        started = d.decide_start(job, lease, head.resource, timeout)
        self._token = started.fencing_token
        self._writer.append((started,))

    @property
    def token(self) -> int | None:
        """The fencing token of the job's own resource."""
        return self._token

    def _diverged(self, found: Divergence) -> None:
        step = None if found.step is None else _full(found)
        body = e.DivergenceFound(found.kind, _encoded(found.expected), _encoded(found.got))
        self._writer.append((e.Event(body, step=step, status="fail"),))

    def _record(self, step: str, body: e.Body, status: e.Status = "success", name: str | None = None) -> None:
        self._writer.append((e.Event(body, step=step, status=status, side_effect=name),))

    # --- state --------------------------------------------------------------------------------------------------

    async def load(self, step: str, key: str) -> Aggregate:
        """The branch's newest version."""
        if self.matcher.knows(step) or not self.at_home(key):
            return await super().load(step, key)
        found = self._states.aggregate(key)
        body = e.StepCompleted("load", found.seq)
        self._writer.append((e.Event(body, step=step, resource=key, resource_version=found.version),))
        return Aggregate(key, found.version, dict(found.data))

    async def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Writes into the branch, under the rules of the live mode."""
        if self.matcher.knows(step) or not self.at_home(key):
            return await super().save(step, key, changes, expected)
        current = self._states.aggregate(key)
        token = self._token if key == self.setting.head.resource else self._token_of(key)
        request = SaveRequest(key, step, changes, expected, token)
        lease = self._states.lease(key) if token is not None else None
        try:
            decision = decide_save(current, lease, request, current.writer)
        except values.ValueRefused as error:
            raise BadStep(f"{step}: {error}", step=step) from error
        if isinstance(decision, SaveRefused):
            self._writer.append((decision.event,))
            raise WriteRefused.found(key, decision.current, expected, decision.reason, step)
        self._writer.append((decision,))
        return expected + 1

    # --- effects ------------------------------------------------------------------------------------------------

    async def effect(self, call: EffectCall) -> Any:
        """Performs an effect through the gate, and records what became of it."""
        if not self.matcher.knows(call.step):
            call = call._replace(key=current_key(call.key, self._states.idempotency_at))
        try:
            answer = await super().effect(call)
            stubbed = isinstance(self._verdicts.get(call.step), Substitute)
            data = self._hidden(encode_answer(answer)) if stubbed else None
        except Exception as error:
            self._failed(call, error)
            raise
        self._verdicts.pop(call.step, None)
        if stubbed:
            self._record(call.step, e.EffectSucceeded(call.key, data, None, 0, "stub"), name=call.name)
        return answer

    def judge(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        """What the branch's own past says, else the recorded answer, else a stub, else blocked."""
        if self.matcher.knows(call.step):
            return super().judge(call, request)
        request = self.masked(request)
        known = self._states.idempotency_at(call.key)
        decision = d.decide_effect(known, request, self.job_id, False)
        if isinstance(decision, d.Answered):
            self._writer.append((decision.skipped,))
            return Recorded(self.stored(decision.record.answer, decision.record.answer_ref))
        if isinstance(decision, d.Refused) and decision.failure_class is FailureClass.VALIDATION:
            if decision.event is not None:
                self._writer.append((decision.event,))
            return Recorded(None, EffectConflict(decision.reason, step=call.step))
        self._writer.append((d.start_effect(request).started,))
        verdict = self._verdicts[call.step] = self._later_answer(call, request)
        return verdict

    def _later_answer(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        step = self._later.get(call.step)
        if step is None or step.kind != "effect":
            self.matcher.unrecorded(call.step, {"step": call.step, "kind": "effect", "digest": request.digest})
            return self.without_answer(call, "the recording has no such step")
        recorded = self.recorded_request(step)
        if recorded is not None and recorded[0] != request.digest:
            self.request_differs(call, request, recorded)
            return self.without_answer(call, "the recording has another request for this step")
        if step.resolved is not None:
            return self._resolved(call, step.resolved)
        if not self.outcome_known(step):
            self.matcher.found("outcome_unknown", call.step, step.describe(), None)
            return self.without_answer(call, "its recorded outcome is unknown")
        return self._recorded(call, step)

    def _resolved(self, call: EffectCall, told: Occurred) -> Verdict:
        """The call was in doubt then, and a person has told its outcome since: the branch goes on with that."""
        if told.body.outcome != s.DONE:
            return self.without_answer(call, "a person told that the recorded call was not done")
        answer, ref = told.body.answer, told.body.answer_ref
        self._record(call.step, e.EffectSucceeded(call.key, answer, ref, 0, "operator"), name=call.name)
        return Recorded(self.stored(answer, ref))

    def _recorded(self, call: EffectCall, step: Step) -> Verdict:
        verdict = self.answer(call, step)
        at = step.outcome
        assert at is not None
        if isinstance(at.body, e.EffectSucceeded | e.EffectSkipped):
            body = e.EffectSucceeded(call.key, at.body.answer, at.body.answer_ref, 0, "recorded")
            self._record(call.step, body, name=call.name)
        return verdict

    def _failed(self, call: EffectCall, error: Exception) -> None:
        """An effect that was started in the branch has to have an outcome there."""
        if self._verdicts.pop(call.step, None) is None:
            return
        reason = d.bounded(scrub_text(str(error), self._secrets))
        cause = error.__cause__ if error.__cause__ is not None else error
        kind = error.failure_class if isinstance(error, StepError) else FailureClass.UNKNOWN
        if kind is FailureClass.IN_DOUBT:
            self._record(call.step, e.EffectInDoubt(call.key, reason, 0), "fail", call.name)
            return
        name = "EffectBlocked" if isinstance(error, EffectBlocked) else type(cause).__qualname__
        rule = explain(self.setting.app, cause)[1]
        body = e.EffectFailed(call.key, kind, reason, name, 0, keep(cause, rule, self._secrets))
        self._record(call.step, body, "fail", call.name)

    def _hidden(self, answer: bytes | None) -> bytes | None:
        return None if answer is None else hide(answer, self._secrets)

    # --- the rest -----------------------------------------------------------------------------------------------

    def decide(self, step: str, value: bytes, because: bytes | None) -> None:
        """Records a decision."""
        if self.matcher.knows(step):
            super().decide(step, value, because)
            return
        scrubbed = None if because is None else scrub(because, self._secrets)
        self._record(step, e.DecisionRecorded(scrub(value, self._secrets), scrubbed))

    async def cache(self, step: str, source: str, key: str) -> CacheAnswer:
        """The recorded read, else the state in the branch that the cache stands for."""
        if self.matcher.knows(step):
            return await super().cache(step, source, key)
        recorded = self._later.get(step)
        at = None if recorded is None else recorded.find(e.CacheRead)
        if at is not None and not self.setting.bypass:
            found = recorded_read(at, self._secrets)
        else:
            found = self.source_of(step, source, key, self._writer.seq) or CacheAnswer(False)
        value = values.encode(found.value) if found.hit else None
        self._record(step, e.CacheRead(source, key, found.hit, found.version, found.age_ms, value))
        return found

    def aggregate_at(self, key: str, seq: int) -> s.Aggregate:
        """The branch's newest version from the base on."""
        return self._states.aggregate(key) if seq >= self.setting.base else super().aggregate_at(key, seq)

    async def acquire(self, step: str, resource: str, ttl: float, wait: float) -> LeaseHandle:
        """Grants the lease in the branch, where nobody competes, unless it was refused then."""
        if self.matcher.knows(step):
            lease = await super().acquire(step, resource, ttl, wait)
            self._leases[resource] = (step, lease.token)
            return lease
        if not self.at_home(resource):
            return self.away.acquire(step, resource)
        if resource == self.setting.head.resource and self._token is not None:
            return LeaseHandle(resource, self._token)
        known = self._states.lease(resource)
        token = (known.token if known is not None else 0) + 1
        body = e.LeaseAcquired(int(ttl * 1000), 0)
        self._writer.append((e.Event(body, step=step, resource=resource, fencing_token=token),))
        self._leases[resource] = (step, token)
        return LeaseHandle(resource, token)

    def release(self, lease: LeaseHandle) -> None:
        """Gives a lease back, unless the recording did so before the base."""
        step, token = self._leases.pop(lease.resource, ("", 0))
        held = self._states.lease(lease.resource)
        if held is None or held.released or held.token != token:
            return
        body = e.LeaseReleased(0)
        self._writer.append((e.Event(body, step=step, resource=lease.resource, fencing_token=token),))

    def _token_of(self, resource: str) -> int | None:
        held = self._leases.get(resource)
        return None if held is None else held[1]

    def now_us(self, step: str) -> int:
        """The recorded time of this step, else the branch's own, which goes on from its base."""
        if self.matcher.knows(step):
            return super().now_us(step)
        recorded = self._later.get(step)
        at = None if recorded is None else recorded.find(e.StepCompleted)
        now = self._writer.now_us if at is None or at.body.value is None else int(values.decode(at.body.value))
        self._record(step, e.StepCompleted("now", None, values.encode(now)))
        return now

    def note(self, step: str, fields: bytes) -> None:
        """Records a note."""
        if self.matcher.knows(step):
            super().note(step, fields)
            return
        self._record(step, e.NoteRecorded(scrub(fields, self._secrets)))

    def enqueue(self, step: str, child: Child) -> None:
        """Records the child job; a branch of one job runs no other."""
        if self.matcher.knows(step):
            super().enqueue(step, child)
            return
        self._record(step, e.ChildEnqueued(child.job_id, child.type, values.digest(child.payload)))

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self, finished: Finished) -> None:
        """Records how the attempt ended in the branch."""
        if finished.ended is None:
            self.matcher.finish()
        if finished.failure is not None:
            self._writer.append(self._failure(finished.failure))
        elif finished.ended is None:
            self._writer.append((e.Event(e.JobSucceeded(finished.result, None, 0)),))

    def _failure(self, failure: d.AttemptFailure) -> tuple[e.Event, ...]:
        job = self._states.job(self.job_id)
        assert job is not None
        retry = self.setting.app.types[self.setting.head.type].retry
        return d.decide_failure(job, failure, retry, self._writer.now_us, 0.5)


def _full(found: Divergence) -> str:
    return found.step or "" if found.occurrence == 1 else f"{found.step}#{found.occurrence}"


def _encoded(value: Any) -> bytes | None:
    return None if value is None else values.encode(values.plain(value))
