"""What running attempts ask of the homes of global keys: claims out, answers in, and what became of them.

A claim is asked for in the turn that records it. Its call starts when the answer and `EffectStarted` are durable; what
became of it goes to the home in the turn that records it here. An attempt that ends gives back what it has claimed, so
no claim outlives its attempt: the next owner of the attempt's partition does it where the worker is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.claims import Ask
from rewindq.engine.core.global_keys import home_of
from rewindq.engine.core.requests import CLAIMED, FREE, REFUSED
from rewindq.engine.effects.errors import AttemptEnded, NoAnswer
from rewindq.engine.runtime.deployment import Deployment

from .keys import Asked, Keys
from .owner import About, Owner
from .run import Run

if TYPE_CHECKING:
    from .home import Home

#: How long a claim waits for the call of another job, in seconds.
CLAIM_WAIT = 30.0
#: How long a key's home may take to answer beyond that, in seconds.
ANSWER_MAX = 30.0
#: A claim is asked for again this often, in seconds: its home may have passed to another worker.
ASK_AGAIN = 2.0


class _Pending(NamedTuple):
    """A claim whose answer has not come."""

    run: Run
    request: d.EffectRequest
    request_id: str
    home: int
    sent: float
    answer: asyncio.Future[e.ClaimReply]


class Claims:
    """Claims of a worker's running attempts. Everything here runs in the event loop."""

    def __init__(self, deployment: Deployment, wake: Callable[[], None]) -> None:
        self.keys = Keys(deployment, wake)
        self._deployment = deployment
        self._pending: dict[str, _Pending] = {}

    # --- asking ---

    async def ask(self, run: Run, request: d.EffectRequest) -> e.ClaimReply:
        """What the key's home decides, recorded. Raises NoAnswer, AttemptEnded."""
        home = home_of(request.key, self._deployment.partitions)
        answer: asyncio.Future[e.ClaimReply] = asyncio.get_running_loop().create_future()
        pending = _Pending(run, request, run.next_request(), home, run.clock.monotonic(), answer)
        requested = e.ClaimRequested(pending.request_id, request.key, request.digest, home)
        run.flush((e.Event(requested, step=request.step, side_effect=request.name),))
        self._pending[pending.request_id] = pending
        try:
            reply = await self._answered(pending)
        finally:
            self._pending.pop(pending.request_id, None)
        if reply.outcome == REFUSED:
            message = f"effect {request.name!r}: partition {home} refused the claim of {request.key!r}: {reply.reason}"
            raise NoAnswer(message, step=request.step)
        return reply

    async def _answered(self, pending: _Pending) -> e.ClaimReply:
        run, request = pending.run, pending.request
        deadline = pending.sent + CLAIM_WAIT + ANSWER_MAX
        while (left := deadline - run.clock.monotonic()) > 0:
            self._send(pending, max(0.0, pending.sent + CLAIM_WAIT - run.clock.monotonic()))
            await asyncio.wait({pending.answer}, timeout=min(left, ASK_AGAIN))
            if run.closed:
                raise AttemptEnded(f"the attempt ended while it waited for the key {request.key!r}")
            if pending.answer.done():
                return pending.answer.result()
        raise NoAnswer(
            f"effect {request.name!r}: partition {pending.home}, home of the key {request.key!r}, did not answer "
            f"within {CLAIM_WAIT + ANSWER_MAX:g} s; is a worker running for it? `rewindq doctor` tells",
            step=request.step,
        )

    def _send(self, pending: _Pending, wait: float) -> None:
        run, request, owner = pending.run, pending.request, pending.run.owner
        resolves = request.has_lookup or request.idempotent
        about = self._about(run)
        if pending.home == owner.partition:
            what = (pending.request_id, request.key, request.digest, run.job_id, run.attempt, request.step)
            ask = Ask(*what, owner.partition, resolves)
            self.keys.ask(Asked(owner, about, ask, wait, lambda reply: self._told(pending, reply)))
            return
        body = e.ClaimRequest(
            pending.request_id, request.key, request.digest, owner.partition, resolves, int(wait * 1000)
        )
        self._append(owner, pending.home, about, request.step, body)

    # --- answers ---

    def take(self, owner: Owner, record: e.EventRecord, event: e.Event, body: Any, leases: Home) -> None:
        """Takes in what concerns claims: requests to the keys that are at home here, and answers to ours."""
        if not isinstance(body, e.ClaimReply):
            self.keys.take(owner, record, event, body, leases)
            return
        owner.heard(record.lamport)
        pending = self._pending.get(body.request_id)
        if pending is not None and pending.run.owner is owner and not pending.run.closed:
            self._told(pending, body)
        elif body.outcome == CLAIMED and not self._holds(owner, record.job_id or "", body.request_id):
            # Granted to an attempt that is over.
            about = About.asking(record, body.key.encode())
            self._settle(owner, about, event.step, body.request_id, body.key, FREE)

    def _holds(self, owner: Owner, job_id: str, request_id: str) -> bool:
        open_effects = owner.states.open_effects(job_id)
        return open_effects is not None and request_id in (claim for _, claim in open_effects.claims.values())

    def _told(self, pending: _Pending, reply: e.ClaimReply) -> None:
        if pending.answer.done():
            return
        run, request = pending.run, pending.request
        reply = self._known_better(pending, reply)
        waited = int((run.clock.monotonic() - pending.sent) * 1000)
        answered = e.ClaimAnswered(
            reply.request_id,
            reply.key,
            pending.home,
            reply.outcome,
            waited,
            reply.holder,
            reply.request_digest,
            reply.reason,
            reply.position,
        )
        status: e.Status = "success" if reply.outcome in (CLAIMED, s.DONE) else "fail"
        run.flush((e.Event(answered, step=request.step, status=status, side_effect=request.name),))
        self.keys.wake()
        pending.answer.set_result(reply)

    def _known_better(self, pending: _Pending, reply: e.ClaimReply) -> e.ClaimReply:
        """A success of this job's that its home was not told of is told again."""
        known = pending.run.owner.states.idempotency(reply.key)
        if reply.outcome != CLAIMED or reply.reason is None or known is None or known.status != s.DONE:
            return reply
        run = pending.run
        said = (known.answer, known.answer_ref)
        self._settle(
            run.owner, self._about(run), pending.request.step, reply.request_id, reply.key, s.DONE, None, *said
        )
        return replace(reply, outcome=s.DONE, reason=None, answer=known.answer, answer_ref=known.answer_ref)

    # --- what became of claims ---

    def outcome(self, run: Run, event: e.Event) -> None:
        """Records what became of a call, and tells the key's home in the same turn."""
        body: Any = event.body
        claim = self._claim_of(run, event.step or "")
        run.flush((event,))
        if claim is None:
            return
        done = isinstance(body, e.EffectSucceeded)
        outcome = s.DONE if done else s.FAILED if isinstance(body, e.EffectFailed) else s.IN_DOUBT
        said = (getattr(body, "reason", None), getattr(body, "answer", None), getattr(body, "answer_ref", None))
        self._settle(run.owner, self._about(run), event.step, claim[1], body.key, outcome, *said)

    def give_back(self, run: Run, step: str) -> None:
        """Frees a claim under which no call was begun; anything else is left to its outcome, or the attempt's end."""
        claim = None if run.closed else self._claim_of(run, step)
        if claim is None or self._begun(run.owner, run.job_id, step, claim[0]):
            return
        self._settle(run.owner, self._about(run), step, claim[1], claim[0], FREE)

    def end_run(self, run: Run, events: Iterable[e.Event]) -> None:
        """`end` for a running attempt."""
        open_effects = run.owner.states.open_effects(run.job_id)
        if open_effects is not None and open_effects.claims:
            self.end(run.owner, self._about(run), events)

    def end(self, owner: Owner, about: About, events: Iterable[e.Event]) -> None:
        """Gives back what an attempt that ends has claimed: before `events`, which end it, are decided."""
        job_id = about.job_id or ""
        open_effects = owner.states.open_effects(job_id)
        if open_effects is None or not open_effects.claims:
            return
        reasons = {event.body.key: event.body.reason for event in events if isinstance(event.body, e.EffectInDoubt)}
        for step, (key, request_id) in sorted(open_effects.claims.items()):
            if self._begun(owner, job_id, step, key):
                self._settle(owner, about, step, request_id, key, s.IN_DOUBT, reasons.get(key))
            else:
                self._settle(owner, about, step, request_id, key, FREE)

    def _about(self, run: Run) -> About:
        return About.job(run.job_id, run.head, run.attempt, run.owner.partition, run.last_seq)

    def _claim_of(self, run: Run, step: str) -> tuple[str, str] | None:
        open_effects = run.owner.states.open_effects(run.job_id)
        return None if open_effects is None else open_effects.claims.get(step)

    def _begun(self, owner: Owner, job_id: str, step: str, key: str) -> bool:
        open_effects = owner.states.open_effects(job_id)
        return open_effects is not None and open_effects.effects.get(step) == (key, True)

    def _settle(
        self,
        owner: Owner,
        about: About,
        step: str | None,
        request_id: str,
        key: str,
        outcome: str,
        reason: str | None = None,
        answer: bytes | None = None,
        answer_ref: str | None = None,
    ) -> None:
        body = e.SettleRequest(request_id, key, owner.partition, outcome, reason, answer, answer_ref)
        home = home_of(key, self._deployment.partitions)
        if home == owner.partition:
            self.keys.settle(owner, about, step, body, owner.epoch)
        else:
            self._append(owner, home, about, step, body)

    def _append(
        self, owner: Owner, home: int, about: About, step: str | None, body: e.ClaimRequest | e.SettleRequest
    ) -> None:
        """Appends a request to the home's commands, with the open turn."""
        about = replace(about, key=body.key.encode(), resource=None)
        owner.unnumbered(self._deployment.topics.commands, home, about, e.Event(body, step=step))
        self.keys.wake()
