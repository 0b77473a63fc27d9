"""Claims of global keys: what their home decides, and what an answer allows the job that asked. Pure.

At the home, `lookup(key)` gives what is recorded under a stored key as `(seq, record)`.
"""

from __future__ import annotations

from typing import NamedTuple

from . import events as e
from . import state as s
from .compensate import SUFFIX, Lookup, being_undone, next_key
from .decide import EffectDecision, EffectRequest, decide_effect
from .global_keys import record_key
from .requests import BUSY, CLAIMED, CONFLICT, FREE
from .texts import bounded

#: What a claim may come to: what effects do, or no call was begun under it.
SETTLEMENTS = (s.DONE, s.FAILED, s.IN_DOUBT, FREE)


class Ask(NamedTuple):
    """A claim that is asked for. `resolves`: the job can find out what became of a call in doubt."""

    request_id: str
    key: str
    digest: str
    job_id: str
    attempt: int
    step: str
    from_partition: int
    resolves: bool


class Answer(NamedTuple):
    """What the home decides at once: events of its own, and the reply."""

    events: tuple[e.Event, ...]
    reply: e.ClaimReply


class Wait(NamedTuple):
    """Another job makes the call right now."""

    holder: str


def current_key(key: str, lookup: Lookup) -> str:
    """The key under which the effect is called now: another one once it was compensated."""
    return next_key(
        key,
        lambda current: (undone := lookup(record_key(current + SUFFIX))) is not None and undone[1].status == s.DONE,
    )


def decide_claim(ask: Ask, lookup: Lookup, home: int, next_seq: int) -> Answer | Wait:
    """Who may make the call: one job at a time, nobody once it is done.

    `next_seq` is the number that the home's next event will have.
    """
    key = ask.key if ask.key.endswith(SUFFIX) else current_key(ask.key, lookup)
    known = lookup(record_key(key))
    if known is None:
        return _claim(ask, key, None, home, next_seq)
    seq, record = known
    position = f"p{home}@{seq}"
    told = e.ClaimReply(ask.request_id, key, CONFLICT, record.job_id, record.request_digest, position=position)
    if record.request_digest != ask.digest:
        return Answer((), told)
    if record.status == s.DONE:
        undo = being_undone(record_key(key), lookup)
        if undo is not None:
            return Wait(undo.job_id)
        return Answer((), _with(told, s.DONE, answer=record.answer, answer_ref=record.answer_ref))
    if record.status == s.FAILED:
        return _claim(ask, key, None, home, next_seq)
    doubt = record.reason or "no outcome was recorded"
    events: tuple[e.Event, ...] = ()
    if record.status == s.STARTED:
        if record.claim_id == ask.request_id:
            return Answer((), _with(told, CLAIMED, reason=record.reason))
        if record.job_id != ask.job_id:
            return Wait(record.job_id)
        if record.attempt == ask.attempt:
            return Answer((), _with(told, BUSY))
        doubt = f"attempt {record.attempt} has ended, and what became of its call was not told"
    if ask.resolves:
        return _claim(ask, key, doubt, home, next_seq)
    if record.status == s.STARTED:
        events = (_settled(record, key, s.IN_DOUBT, doubt),)
    if record.job_id != ask.job_id:
        doubt = bounded(f"{doubt} (in job {record.job_id})")
    return Answer(events, _with(told, s.IN_DOUBT, reason=doubt))


def busy(ask: Ask, holder: str) -> e.ClaimReply:
    """The reply to who has waited long enough."""
    return e.ClaimReply(ask.request_id, ask.key, BUSY, holder, ask.digest)


def _claim(ask: Ask, key: str, doubt: str | None, home: int, seq: int) -> Answer:
    claimed = e.KeyClaimed(ask.request_id, key, ask.digest, ask.from_partition, doubt)
    reply = e.ClaimReply(ask.request_id, key, CLAIMED, ask.job_id, ask.digest, reason=doubt, position=f"p{home}@{seq}")
    return Answer((e.Event(claimed, step=ask.step),), reply)


def _with(
    told: e.ClaimReply,
    outcome: str,
    *,
    reason: str | None = None,
    answer: bytes | None = None,
    answer_ref: str | None = None,
) -> e.ClaimReply:
    return e.ClaimReply(
        told.request_id,
        told.key,
        outcome,
        told.holder,
        told.request_digest,
        reason,
        answer,
        answer_ref,
        told.position,
    )


class Settlement(NamedTuple):
    """What a settlement comes to: an event, or why there is none, for people, where that matters."""

    event: e.Event | None = None
    refused: str | None = None


def decide_settle(lookup: Lookup, body: e.SettleRequest, stale: bool) -> Settlement:
    """Records what became of a claim, once.

    A success is a fact about the world outside: it counts for its claim even from an owner that was replaced (`stale`).
    """
    if body.outcome not in SETTLEMENTS:
        return Settlement(refused=f"it says {body.outcome!r}, and there are {', '.join(SETTLEMENTS)}")
    done = body.outcome == s.DONE
    # A claim that was given back before its answer came does not know the key that it was granted.
    for key in dict.fromkeys((body.key, body.key if body.key.endswith(SUFFIX) else current_key(body.key, lookup))):
        known = lookup(record_key(key))
        if known is None or known[1].claim_id != body.request_id:
            continue
        record = known[1]
        if record.status == s.STARTED and (done or not stale):
            settled = _settled(record, key, body.outcome, body.reason, body.answer, body.answer_ref)
            return Settlement(settled)
        if record.status == s.IN_DOUBT and done:
            return Settlement(_settled(record, key, s.DONE, None, body.answer, body.answer_ref))
        return Settlement(refused=_late(record) if done and record.status != s.DONE else None)
    if not done:
        return Settlement()
    known = lookup(record_key(body.key))
    return Settlement(refused="nobody has claimed the key" if known is None else _late(known[1]))


def _late(record: s.Idempotency) -> str:
    return f"its claim has ended; the key is recorded as {record.status} by job {record.job_id}"


def _settled(
    record: s.Idempotency,
    key: str,
    outcome: str,
    reason: str | None,
    answer: bytes | None = None,
    answer_ref: str | None = None,
) -> e.Event:
    body = e.KeySettled(record.claim_id or "", key, outcome, reason, answer, answer_ref)
    return e.Event(body, step=record.step, status="success" if outcome in (s.DONE, FREE) else "fail")


def claim_refusal(key: str, record: s.Idempotency) -> str | None:
    """Why a person cannot resolve a global key now; None where one can."""
    if record.status == s.IN_DOUBT:
        return None
    if record.status == s.STARTED:
        return (
            f"attempt {record.attempt} of job {record.job_id} has claimed {key!r}, and may learn the outcome itself: "
            "wait until it has ended, or cancel the job"
        )
    return f"effect {key!r} is not in doubt: it is recorded as {record.status}"


def resolve_claim(record: s.Idempotency, command: e.ResolveCommand) -> e.Event:
    """The home's record on a person's word."""
    body = e.KeySettled(
        record.claim_id or "",
        command.key,
        command.outcome,
        command.reason,
        command.answer,
        command.answer_ref,
        command.actor,
        command.command_id,
    )
    return e.Event(body, step=record.step, status="success" if command.outcome == s.DONE else "fail")


def decide_answered(reply: e.ClaimReply | e.ClaimAnswered, request: EffectRequest, job_id: str) -> EffectDecision:
    """What the home's answer allows, by the rules of every key."""
    if reply.outcome == CLAIMED and reply.reason is None:
        return decide_effect(None, request, job_id, False)
    status = {s.DONE: s.DONE, BUSY: s.STARTED}.get(reply.outcome, s.IN_DOUBT)
    answer, ref = (reply.answer, reply.answer_ref) if isinstance(reply, e.ClaimReply) else (None, None)
    record = s.Idempotency(
        status, reply.request_digest or "", reply.holder or "", 0, request.step, answer, ref, reply.reason
    )
    seq = int((reply.position or "@0").partition("@")[2])
    return decide_effect((seq, record), request, job_id, reply.outcome == BUSY)
