"""The home of global keys: who may make the call under one, decided here in log order, whichever job asks.

A claim is given to one job at a time, and to nobody once the call was done. Who asks while another job makes the call
waits for what becomes of it, in the order of asking. Who waits is kept in memory only, and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rewindq.engine.core import events as e
from rewindq.engine.core.claims import (
    Ask,
    Wait,
    busy,
    claim_refusal,
    decide_claim,
    decide_settle,
    resolve_claim,
)
from rewindq.engine.core.doubt import refused_resolve
from rewindq.engine.core.global_keys import base_of, home_of, is_global, record_key
from rewindq.engine.core.requests import REFUSED, replaced, stranger
from rewindq.engine.runtime.deployment import Deployment

from .owner import About, Owner

if TYPE_CHECKING:
    from .home import Home

CLAIM, SETTLE = "claim", "settle"


class Asked:
    """A claim as the home's owner took it in; `reply` takes the answer to who asks. `wait` seconds."""

    def __init__(
        self, owner: Owner, about: About, ask: Ask, wait: float, reply: Callable[[e.ClaimReply], None]
    ) -> None:
        self.owner = owner
        self.about = about
        self.ask = ask
        self.wait = wait
        self.reply = reply
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """It waits no longer."""
        if self.timer is not None:
            self.timer.cancel()


class Keys:
    """The global keys of a worker's partitions. Everything here runs in the event loop."""

    def __init__(self, deployment: Deployment, wake: Callable[[], None]) -> None:
        self._deployment = deployment
        self._partitions = deployment.partitions
        self.wake = wake
        #: By partition and key, in the order of asking; by request.
        self._waiting: dict[tuple[int, str], dict[str, Asked]] = {}

    # --- requests of other partitions ---

    def take(
        self,
        owner: Owner,
        record: e.EventRecord,
        event: e.Event,
        body: e.ClaimRequest | e.SettleRequest,
        leases: Home,
    ) -> None:
        """Decides a request, unless it cannot be meant or comes from a worker that was replaced.

        `leases` hears of a newer owner: what its former ones' attempts hold ends with their claims.
        """
        owner.heard(record.lamport)
        about = About.asking(record, body.key.encode())
        reason = self._malformed(owner, body)
        stale = replaced(body.from_partition, record.epoch, owner.states.peers.get(body.from_partition, 0))
        if reason is None:
            leases.hear(owner, body.from_partition, record.epoch, about.key)
        if isinstance(body, e.SettleRequest):
            if reason is None:
                self.settle(owner, about, event.step, body, record.epoch, stale is not None)
            else:
                self._refuse(owner, about, event.step, body, record.epoch, reason)
            return
        reason = reason or stale
        asked = self._asked(owner, about, record, event, body)
        if reason is not None:
            self._refuse(owner, about, event.step, body, record.epoch, reason)
            if stranger(body.from_partition, self._partitions) is None:
                asked.reply(e.ClaimReply(body.request_id, body.key, REFUSED, reason=reason))
            return
        self.ask(asked)

    def _malformed(self, owner: Owner, body: e.ClaimRequest | e.SettleRequest) -> str | None:
        if (refusal := stranger(body.from_partition, self._partitions)) is not None:
            return refusal
        if not is_global(body.key):
            return f"{body.key!r} is no global key"
        home = home_of(body.key, self._partitions)
        return None if home == owner.partition else f"{body.key} is at home on partition {home}"

    def _refuse(
        self,
        owner: Owner,
        about: About,
        step: str | None,
        body: e.ClaimRequest | e.SettleRequest,
        epoch: int,
        reason: str,
    ) -> None:
        op = CLAIM if isinstance(body, e.ClaimRequest) else SETTLE
        refused = e.RequestRefused(body.request_id, op, body.from_partition, epoch, reason)
        owner.append(about, (e.Event(refused, step=step, status="fail"),))

    def _asked(self, owner: Owner, about: About, record: e.EventRecord, event: e.Event, body: e.ClaimRequest) -> Asked:
        def reply(answer: e.ClaimReply) -> None:
            told = e.Event(answer, step=event.step)
            owner.answer(self._deployment.topics.commands, body.from_partition, about, told)

        ask = Ask(
            body.request_id,
            body.key,
            body.request_digest,
            record.job_id or "",
            record.attempt,
            event.step or "",
            body.from_partition,
            body.resolves,
        )
        return Asked(owner, about, ask, body.wait / 1000, reply)

    # --- claims ---

    def ask(self, asked: Asked) -> None:
        """Decides a claim now, or when the call that another job makes has ended, or refuses it after its wait."""
        owner, ask = asked.owner, asked.ask
        place = (owner.partition, base_of(ask.key))
        if ask.request_id in self._waiting.get(place, ()):
            return
        if self._decide(asked) is None:
            return
        self._waiting.setdefault(place, {})[ask.request_id] = asked
        asked.timer = asyncio.get_running_loop().call_later(asked.wait, self._give_up, place, asked)

    def _decide(self, asked: Asked) -> Wait | None:
        """Answers, unless the claim has to wait."""
        owner = asked.owner
        decision = decide_claim(asked.ask, owner.states.idempotency_at, owner.partition, owner.seq)
        if isinstance(decision, Wait):
            return decision
        if decision.events:
            owner.append(asked.about, decision.events)
        asked.reply(decision.reply)
        self.wake()
        return None

    def _give_up(self, place: tuple[int, str], asked: Asked) -> None:
        self._leave(place, asked.ask.request_id)
        waits = self._decide(asked)
        if waits is not None:
            asked.reply(busy(asked.ask, waits.holder))
            self.wake()

    def _leave(self, place: tuple[int, str], request_id: str) -> bool:
        waiting = self._waiting.get(place, {})
        asked = waiting.pop(request_id, None)
        if asked is None:
            return False
        asked.end()
        if not waiting:
            del self._waiting[place]
        return True

    def settle(
        self, owner: Owner, about: About, step: str | None, body: e.SettleRequest, epoch: int, stale: bool = False
    ) -> None:
        """Records what became of a claim, and answers who waits."""
        place = (owner.partition, base_of(body.key))
        if not self._leave(place, body.request_id):
            settlement = decide_settle(owner.states.idempotency_at, body, stale)
            if settlement.event is not None:
                owner.append(about, (settlement.event,))
            elif settlement.refused is not None:
                self._refuse(owner, about, step, body, epoch, settlement.refused)
        self._go_on(place)

    def _go_on(self, place: tuple[int, str]) -> None:
        for asked in list(self._waiting.get(place, {}).values()):
            if self._decide(asked) is None:
                self._leave(place, asked.ask.request_id)
        self.wake()

    # --- a person's word ---

    def resolve(self, owner: Owner, job_id: str, body: e.ResolveCommand, unusable: str | None) -> bool:
        """Settles a key on a person's word; True when that is all there is to do here.

        The partition whose job has left the call in doubt hears it, too. Where that is this one, or this one is told
        so by the key's home, what its own job knows is still to be resolved.
        """
        if home_of(body.key, self._partitions) != owner.partition:
            return False
        stored, states = record_key(body.key), owner.states
        known = states.idempotency(stored)
        holder = job_id if known is None else known.job_id
        if any(states.commands.of(about, body.command_id) is not None for about in (stored, holder)):
            return True  # answered before
        if known is None:
            refusal: str | None = f"no job has claimed the key {body.key!r}"
        else:
            refusal = claim_refusal(body.key, known) or unusable
        about = About(holder, 0, body.key.encode())
        if known is None or refusal is not None:
            owner.append(about, (refused_resolve(body, refusal or ""),))
            return True
        owner.append(about, (resolve_claim(known, body),))
        self._go_on((owner.partition, base_of(body.key)))
        if known.claimant is None or known.claimant == owner.partition:
            return False
        about = About(known.job_id, 0, about.key, causation_id=f"p{owner.partition}@{owner.seq - 1}")
        owner.unnumbered(self._deployment.topics.commands, known.claimant, about, e.Event(body))
        return True

    def drop_partition(self, partition: int) -> None:
        """Forgets who waits on a partition that passed on."""
        for place in [place for place in self._waiting if place[0] == partition]:
            for asked in self._waiting.pop(place).values():
                asked.end()
