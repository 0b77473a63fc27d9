"""The gate: the one way by which any mode reaches the outside world. It denies unless its policy says otherwise.

Live modes permit a call only when the journal has made `EffectStarted` durable under the call's key. Replay modes
never permit: they answer from the recording, let a stub stand in, or block.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..core import decide as d
from ..core import state as s
from ..core import values
from ..core.doubt import unresolved
from ..core.global_keys import is_global
from ..core.retry import FailureClass
from ..ports.clock import Clock
from .call import (
    UNKNOWN_OUTCOME,
    as_recorded,
    decode_answer,
    encode_answer,
    encode_compensation,
    encode_request,
    invoke,
)
from .errors import (
    BadStep,
    EffectBlocked,
    EffectBusy,
    EffectConflict,
    EffectRejected,
    InDoubt,
    StepError,
    Unresolved,
)
from .threads import Threads


class EffectCall(NamedTuple):
    """An effect as the handler wrote it. `compensation` names what undoes it."""

    name: str
    step: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str
    idempotent: bool
    on_doubt: Callable[..., Any] | None
    timeout: float | None
    token: int | None
    compensation: str | None = None


class Permit(NamedTuple):
    """Go through the journal and call."""


class Recorded(NamedTuple):
    """Answer from the recording: the answer's bytes, or the failure that was recorded."""

    answer: bytes | None
    failure: StepError | None = None


class Substitute(NamedTuple):
    """Let a stub stand in."""

    function: Callable[..., Any]


class Block(NamedTuple):
    """Deny."""

    reason: str


Verdict = Permit | Recorded | Substitute | Block


class Policy(Protocol):
    """What a mode may touch."""

    def judge(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        """The verdict on one call."""
        ...


class DenyAll:
    """The default policy."""

    def judge(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        """Denies."""
        return Block("this mode has no permission to call anything")


class PermitJournaled:
    """The live worker's policy: every call, under the journal."""

    def judge(self, call: EffectCall, request: d.EffectRequest) -> Verdict:
        """Permits."""
        return Permit()


class Journal(Protocol):
    """Where a live effect's life is recorded."""

    def current_key(self, key: str) -> str:
        """The key under which the effect is called now: another one once it was compensated."""
        ...

    def decide_effect(self, request: d.EffectRequest) -> d.EffectDecision:
        """What the recorded state allows; records what belongs to the decision itself."""
        ...

    async def claim(self, request: d.EffectRequest) -> tuple[d.EffectRequest, d.EffectDecision]:
        """What the home of a global key allows, and the request under the key that it names."""
        ...

    async def other_call_goes_on(self, request: d.EffectRequest) -> bool:
        """Returns when the job that makes the call under the key has got on; False when there is none to wait for."""
        ...

    async def start(self, request: d.EffectRequest, decision: d.Call) -> None:
        """Returns when `EffectStarted` is durable."""
        ...

    def answer_of(self, record: s.Idempotency) -> bytes | None:
        """A recorded answer's bytes, fetched from the blob store where it is large."""
        ...

    def succeeded(self, request: d.EffectRequest, answer: bytes | None, duration_ms: int, evidence: str) -> None:
        """Records the outcome. Raises values.ValueRefused when the answer cannot be kept."""
        ...

    def failed(self, request: d.EffectRequest, error: BaseException, kind: FailureClass, duration_ms: int) -> str:
        """Records that the call was surely not done. The end of the exception's traceback."""
        ...

    def in_doubt(self, request: d.EffectRequest, reason: str, duration_ms: int | None) -> None:
        """Records that nobody knows."""
        ...


Classify = Callable[[BaseException], FailureClass]


class Gate:
    """Performs effects under a policy."""

    def __init__(
        self,
        clock: Clock,
        classify: Classify,
        journal: Journal | None = None,
        policy: Policy | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._classify = classify
        self._policy: Policy = policy or DenyAll()
        self._threads = threads

    async def perform(self, call: EffectCall) -> Any:
        """The effect's result. Raises a StepError that says why there is none."""
        request = self._request(call)
        verdict = self._policy.judge(call, request)
        if isinstance(verdict, Recorded):
            if verdict.failure is not None:
                raise verdict.failure
            return decode_answer(call.function, verdict.answer)
        if isinstance(verdict, Substitute):
            return await self._invoke(call, verdict.function)
        if isinstance(verdict, Permit) and self._journal is not None:
            return await self._journaled(call, request, self._journal)
        reason = verdict.reason if isinstance(verdict, Block) else "there is no journal to record the call in"
        raise EffectBlocked(f"effect {call.name!r} was blocked: {reason}", step=call.step)

    def _request(self, call: EffectCall) -> d.EffectRequest:
        try:
            digest, meta = encode_request(call.name, call.args, call.kwargs)
            undo = _compensation(call)
        except values.ValueRefused as error:
            raise BadStep(f"effect {call.name!r}: its arguments cannot be recorded: {error}", step=call.step) from error
        timeout_ms = None if call.timeout is None else int(call.timeout * 1000)
        return d.EffectRequest(
            call.name,
            call.step,
            call.key,
            digest,
            meta,
            timeout_ms,
            call.idempotent,
            call.on_doubt is not None,
            undo,
        )

    async def _journaled(self, call: EffectCall, request: d.EffectRequest, journal: Journal) -> Any:
        if is_global(request.key):
            request, decision = await journal.claim(request)
        else:
            key = journal.current_key(request.key)
            if key != request.key:
                request = request._replace(key=key)
            decision = await self._decided(request, journal)
        if request.key != call.key:
            call = call._replace(key=request.key)
        if isinstance(decision, d.Lookup | d.Call) and self._threads is not None and self._threads.runs(call.key):
            await self._first_call_over(call, self._threads)
            decision = await self._decided(request, journal)
        if isinstance(decision, d.Lookup):
            answer = await self._look_up(call, decision.reason)
            # Others may have gone on meanwhile: what is known now decides, and nobody looks up twice.
            decision = await self._decided(request._replace(has_lookup=False, idempotent=True), journal)
            assert not isinstance(decision, d.Lookup)
            if answer is not None and isinstance(decision, d.Call):
                return self._keep(call, request, journal, answer, "lookup", 0)
        if isinstance(decision, d.Answered):
            return decode_answer(call.function, journal.answer_of(decision.record))
        if isinstance(decision, d.Refused):
            raise refusal(decision, call.step)
        await journal.start(request, decision)
        return await self._call(call, request, journal)

    async def _decided(self, request: d.EffectRequest, journal: Journal) -> d.EffectDecision:
        """The decision, once no other job makes the call: who asks for the same then gets its answer."""
        decision = journal.decide_effect(request)
        while isinstance(decision, d.Refused) and decision.failure_class is FailureClass.CONCURRENCY:
            if is_global(request.key) or not await journal.other_call_goes_on(request):
                return decision
            decision = journal.decide_effect(request)
        return decision

    async def _first_call_over(self, call: EffectCall, threads: Threads) -> None:
        """A call whose time ran out may go on in its thread: until that ends nobody can ask what became of it."""
        if not await threads.over(call.key):
            message = (
                f"effect {call.name!r} with key {call.key!r} is in doubt: the thread of its first call still runs "
                f"{threads.wait:g} s later"
            )
            raise Unresolved(message, step=call.step)

    async def _call(self, call: EffectCall, request: d.EffectRequest, journal: Journal) -> Any:
        began = self._clock.monotonic()
        try:
            answer = await self._invoke(call, call.function)
        except Exception as error:
            raise self._outcome_of(call, request, journal, error, self._since(began)) from error
        return self._keep(call, request, journal, answer, "call", self._since(began))

    def _keep(
        self, call: EffectCall, request: d.EffectRequest, journal: Journal, answer: Any, evidence: str, took: int
    ) -> Any:
        """Records an answer. Where it cannot be kept, the call was done all the same: that is for a person to tell."""
        try:
            data = encode_answer(answer)
            journal.succeeded(request, data, took, evidence)
        except values.ValueRefused as error:
            journal.in_doubt(request, f"the call was done, but its answer cannot be recorded: {error}", took)
            raise Unresolved(
                f"effect {call.name!r} was done, but its answer cannot be recorded: {error}", step=call.step
            ) from error
        return as_recorded(call.function, answer, data)

    def _outcome_of(
        self, call: EffectCall, request: d.EffectRequest, journal: Journal, error: Exception, took: int
    ) -> StepError:
        """Records what an exception means, and what the handler is to see."""
        kind = self._classify(error)
        if isinstance(error, (InDoubt, *UNKNOWN_OUTCOME)) or kind is FailureClass.IN_DOUBT:
            reason = d.bounded(f"{type(error).__name__}: {d.text_of(error)}")
            journal.in_doubt(request, reason, took)
            return doubted(call, reason)
        trace = journal.failed(request, error, kind, took)
        raised = EffectRejected(
            f"{type(error).__name__}: {d.bounded(d.text_of(error))}",
            step=call.step,
            retry_after=getattr(error, "retry_after", None),
        )
        raised.failure_class, raised.trace = kind, trace
        raised.terminal = bool(getattr(error, "terminal", False))
        return raised

    async def _look_up(self, call: EffectCall, reason: str) -> Any:
        """What `on_doubt` says: the answer when the call was done, None when it surely was not."""
        assert call.on_doubt is not None
        try:
            return await self._invoke(_lookup_call(call), call.on_doubt)
        except Exception as error:
            message = f"effect {call.name!r} is in doubt ({reason}); on_doubt failed: {d.text_of(error)}"
            raise InDoubt(message, step=call.step) from error

    def _since(self, began: float) -> int:
        return int((self._clock.monotonic() - began) * 1000)

    def _invoke(self, call: EffectCall, function: Callable[..., Any]) -> Awaitable[Any]:
        return invoke(
            function,
            call.args,
            call.kwargs,
            key=call.key,
            token=call.token,
            timeout=call.timeout,
            threads=self._threads,
        )


def _compensation(call: EffectCall) -> bytes | None:
    if call.compensation is None:
        return None
    return encode_compensation(call.compensation, call.args, call.kwargs, call.timeout, call.idempotent)


def doubted(call: EffectCall, reason: str) -> InDoubt:
    """The error of a call that may have been done."""
    if call.idempotent or call.on_doubt is not None:
        return InDoubt(f"effect {call.name!r} with key {call.key!r} is in doubt: {reason}", step=call.step)
    return Unresolved(unresolved(call.name, call.key, reason), step=call.step)


def refusal(refused: d.Refused, step: str) -> StepError:
    """The error of an effect that must not be called."""
    kinds: dict[FailureClass, type[StepError]] = {
        FailureClass.VALIDATION: EffectConflict,
        FailureClass.CONCURRENCY: EffectBusy,
        FailureClass.IN_DOUBT: Unresolved if refused.terminal else InDoubt,
    }
    return kinds[refused.failure_class](refused.reason, step=step)


def _lookup_call(call: EffectCall) -> EffectCall:
    """The lookup takes the effect's own arguments, or, where they do not fit it, the idempotency key alone."""
    assert call.on_doubt is not None
    try:
        shape = inspect.signature(call.on_doubt)
        injected = {name: None for name in ("idempotency_key", "fencing_token") if name in shape.parameters}
        shape.bind(*call.args, **{**call.kwargs, **injected})
    except (TypeError, ValueError):
        return call._replace(args=(), kwargs={})
    return call
