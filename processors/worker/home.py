"""What is at home here and jobs of other partitions ask for: they load it, change it and lease it by request and reply.

A request is decided in log order by the owner of the resource's partition, in one turn with its reply and with the
offset of the request, so it is decided once. Leases count their TTL on this owner's monotonic clock, anew after a
takeover; who waits for one is kept in memory only, and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.aggregate import DELETE
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.requests import (
    CONFLICT,
    DONE,
    EXPIRED,
    FENCED,
    LEASE,
    LOAD,
    OWNED,
    REFUSED,
    RELEASE,
    RENEW,
    SAVE,
    replaced,
    stranger,
)
from rewindq.engine.core.writes import SaveRefused, SaveRequest, decide_save
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.deployment import BodyTooLarge, Deployment

from .owner import About, Owner
from .waiting import Place, WaitQueues


class Request(NamedTuple):
    """A request as its partition's owner took it in."""

    owner: Owner
    record: e.EventRecord
    event: e.Event
    body: e.ResourceRequest
    at: float

    @property
    def resource(self) -> str:
        """What is asked for."""
        return self.event.resource or ""

    @property
    def place(self) -> Place:
        """Where it is at home."""
        return Place(self.owner.partition, self.resource)

    @property
    def about(self) -> About:
        """The asking job; the cause is its own event, on its own partition."""
        return About.asking(self.record, self.resource.encode())


class _Asked:
    """A request that waits for a lease. Implements `Waiter`."""

    def __init__(self, request: Request, grant: Callable[[_Asked], None]) -> None:
        self.request = request
        self.job_id = request.record.job_id or ""
        self.timer: asyncio.TimerHandle | None = None
        self._grant = grant
        self._open = True

    def alive(self) -> bool:
        """Whether it still waits."""
        return self._open

    def grant(self) -> None:
        """The resource is held for it from now on."""
        self.end()
        self._grant(self)

    def end(self) -> None:
        """It waits no longer."""
        self._open = False
        if self.timer is not None:
            self.timer.cancel()


#: Why a lease, or a wait for one, has ended before its time.
REPLACED = "the worker of its attempt was replaced"


class _Lease(NamedTuple):
    about: About
    since: float
    timer: asyncio.TimerHandle


class Home:
    """Answers the requests of other partitions' jobs. Everything here runs in the event loop."""

    def __init__(self, deployment: Deployment, waits: WaitQueues, wake: Callable[[], None]) -> None:
        self._deployment = deployment
        self._partitions = deployment.partitions
        self._clock = deployment.clock
        self._waits = waits
        self._wake = wake
        self._asked: dict[tuple[int, str], _Asked] = {}
        self._leases: dict[Place, _Lease] = {}
        self._ops: Mapping[str, Callable[[Request], None]] = {
            LOAD: self._load,
            SAVE: self._save,
            LEASE: self._lease,
            RENEW: self._renew,
            RELEASE: self._release,
            OWNED: lambda request: None,
        }

    def take(self, owner: Owner, record: e.EventRecord, event: e.Event, body: e.ResourceRequest) -> None:
        """Decides a request and answers it, unless it has to wait or comes from a worker that was replaced."""
        request = Request(owner, record, event, body, self._clock.monotonic())
        owner.heard(record.lamport)
        known = owner.states.peers.get(body.from_partition, 0)
        reason = self._refusal(request) or replaced(body.from_partition, record.epoch, known)
        if reason is not None:
            self._refuse(request, reason)
            return
        if body.op == RELEASE:
            self._release(request)  # it may give back what a former owner's attempt held
        self.hear(owner, body.from_partition, record.epoch, request.resource.encode())
        if body.op != RELEASE:
            self._ops[body.op](request)

    def hear(self, owner: Owner, peer: int, epoch: int, key: bytes) -> None:
        """Takes note of a newer owner of another partition, and ends what attempts of its former ones hold here."""
        if epoch > owner.states.peers.get(peer, 0):
            owner.append(About(None, 0, key), (e.Event(e.PeerRaised(peer, epoch)),))
            self._end_former(owner, peer)

    def waits(self, owner: Owner, request_id: str) -> bool:
        """Whether a request waits for a lease here."""
        return (owner.partition, request_id) in self._asked

    def _refusal(self, request: Request) -> str | None:
        body = request.body
        if body.op not in self._ops:
            return f"it asks for {body.op!r}, and there are {', '.join(self._ops)}"
        refusal = stranger(body.from_partition, self._partitions)
        if refusal is not None or body.op == OWNED:
            return refusal
        if not request.resource or not request.record.job_id:
            return "it names no resource, or no job"
        home = partition_for(request.resource.encode(), self._partitions)
        if home != request.owner.partition:
            return f"{request.resource} is at home on partition {home}"
        return None

    def _refuse(self, request: Request, reason: str) -> None:
        body = request.body
        refused = e.RequestRefused(body.request_id, body.op, body.from_partition, request.record.epoch, reason)
        event = e.Event(refused, step=request.event.step, status="fail", resource=request.resource)
        request.owner.append(request.about, (event,))
        if 0 <= body.from_partition < self._partitions:
            self._reply(request, REFUSED, reason=reason)

    # --- state ---

    def _load(self, request: Request) -> None:
        found = request.owner.states.aggregate(request.resource)
        try:
            inline, ref = self._deployment.large(values.encode(found.data))
        except (values.ValueRefused, BodyTooLarge) as error:
            self._reply(request, REFUSED, reason=f"its value cannot be sent: {error}")
            return
        position = None if found.seq is None else f"p{request.owner.partition}@{found.seq}"
        self._reply(request, DONE, version=found.version, value=inline, value_ref=ref, position=position)

    def _save(self, request: Request) -> None:
        states, body, token = request.owner.states, request.body, request.event.fencing_token
        current = states.aggregate(request.resource)
        try:
            changes: dict[str, Any] = {**values.decode(body.changes or b"{}"), **dict.fromkeys(body.deleted, DELETE)}
            asked = SaveRequest(request.resource, request.event.step or "save", changes, body.expected or 0, token)
            lease = states.lease(request.resource) if token is not None else None
            decision = decide_save(current, lease, asked, current.writer)
        except (ValueError, TypeError) as error:
            self._refuse(request, f"its changes cannot be read: {error}")
            return
        event = decision.event if isinstance(decision, SaveRefused) else decision
        seq = request.owner.append(request.about, (event,)) - 1
        position = f"p{request.owner.partition}@{seq}"
        if not isinstance(decision, SaveRefused):
            self._reply(request, DONE, version=current.version + 1, position=position)
            return
        outcome = FENCED if decision.fenced else CONFLICT
        self._reply(request, outcome, version=decision.current, position=position, reason=decision.reason)

    # --- leases ---

    def _lease(self, request: Request) -> None:
        held = request.owner.states.lent(request.resource)
        if held is not None and held.request_id == request.body.request_id:
            # It was granted by this partition's former owner, or the asker did not have the answer yet.
            self._reply(request, DONE, token=held.token, waited=0)
            return
        if (request.owner.partition, request.body.request_id) in self._asked:
            return
        holder = self._waits.holder(request.place)
        if holder is None:
            self._waits.hold(request.place, request.record.job_id or "")
            self._grant(request)
            return
        requested = e.LeaseRequested(request.body.ttl or 0, holder)
        self._record(request, requested)
        asked = _Asked(request, self._granted)
        asked.timer = asyncio.get_running_loop().call_later((request.body.wait or 0) / 1000, self._give_up, asked)
        self._asked[(request.owner.partition, request.body.request_id)] = asked
        self._waits.join(request.place, asked)

    def _granted(self, asked: _Asked) -> None:
        self._asked.pop((asked.request.owner.partition, asked.request.body.request_id), None)
        self._grant(asked.request)

    def _give_up(self, asked: _Asked) -> None:
        request = asked.request
        asked.end()
        self._waits.leave(request.place, asked)
        self._asked.pop((request.owner.partition, request.body.request_id), None)
        holder = self._waits.holder(request.place) or "nobody"
        reason = "not free within the wait"
        self._record(request, e.LeaseRefused(holder, self._waited(request), reason), "fail")
        self._reply(request, REFUSED, reason=f"it is held by {holder}", waited=self._waited(request))

    def _grant(self, request: Request) -> None:
        owner, body = request.owner, request.body
        known = owner.states.lease(request.resource)
        token = (known.token if known is not None else 0) + 1
        ttl, waited = body.ttl or 0, self._waited(request)
        acquired = e.LeaseAcquired(ttl, waited, body.from_partition, body.request_id)
        self._record(request, acquired, token=token)
        self._hold(request.place, owner, request.about, token, ttl / 1000)
        self._reply(request, DONE, token=token, waited=waited)

    def _hold(self, place: Place, owner: Owner, about: About, token: int, ttl: float) -> None:
        timer = asyncio.get_running_loop().call_later(ttl, self._expire, owner, place, token)
        since = self._leases[place].since if place in self._leases else self._clock.monotonic()
        self._leases[place] = _Lease(about, since, timer)

    def _renew(self, request: Request) -> None:
        held, lease = self._held_under(request)
        if held is None or lease is None:
            self._reply(request, EXPIRED, reason="the lease has ended")
            return
        lease.timer.cancel()
        self._record(request, e.LeaseRenewed(held.ttl), token=held.token)
        self._hold(request.place, request.owner, lease.about, held.token, held.ttl / 1000)
        self._reply(request, DONE, token=held.token)

    def _release(self, request: Request) -> None:
        asked = self._asked.pop((request.owner.partition, request.body.request_id), None)
        if asked is not None:
            self._leave(asked, request, "given up")
            return
        held, lease = self._held_under(request)
        if held is None or lease is None:
            # Nobody waits for it: whoever gave it back had lost it before. It must be seen all the same.
            holder = self._waits.holder(request.place) or "nobody"
            self._refuse(request, f"it does not hold {request.resource} any more; {holder} does")
            return
        released = e.LeaseReleased(int((request.at - lease.since) * 1000))
        self._record(request, released, token=held.token)
        self._end(request.place)

    def _leave(self, asked: _Asked, request: Request, reason: str) -> None:
        """Ends a wait for a lease, as `request` says."""
        asked.end()
        self._waits.leave(request.place, asked)
        refused = e.LeaseRefused(self._waits.holder(request.place) or "", self._waited(asked.request), reason)
        self._record(request, refused, "fail")

    def _end_former(self, owner: Owner, peer: int) -> None:
        """A partition has a new owner: what attempts of its former ones hold here, or wait for, is free at once."""
        for place, asked in list(self._asked.items()):
            if place[0] == owner.partition and asked.request.body.from_partition == peer:
                del self._asked[place]
                self._leave(asked, asked.request, REPLACED)
        for held_place in [one for one in self._leases if one.partition == owner.partition]:
            held = owner.states.lent(held_place.resource)
            if held is not None and held.partition == peer:
                self._expire(owner, held_place, held.token, REPLACED)

    def _held_under(self, request: Request) -> tuple[s.Lent | None, _Lease | None]:
        held = request.owner.states.lent(request.resource)
        if held is None or held.request_id != request.body.request_id:
            return None, None
        return held, self._leases.get(request.place)

    def _expire(self, owner: Owner, place: Place, token: int, why: str | None = None) -> None:
        held, lease = owner.states.lent(place.resource), self._leases.get(place)
        if held is None or lease is None or held.token != token:
            return
        expired = e.Event(e.LeaseExpired(held.holder), status="fail", resource=place.resource, fencing_token=token)
        owner.append(lease.about, (expired,))
        reason = why or f"no renewal came within its TTL of {held.ttl / 1000:g} s"
        body = e.ResourceReply(held.request_id, LEASE, EXPIRED, reason)
        self._answer(owner, held.partition, lease.about, e.Event(body, resource=place.resource, fencing_token=token))
        self._end(place)

    def _end(self, place: Place) -> None:
        self._leases.pop(place).timer.cancel()
        self._waits.freed(place)
        self._wake()

    def _waited(self, request: Request) -> int:
        return int((self._clock.monotonic() - request.at) * 1000)

    # --- events and replies ---

    def _record(self, request: Request, body: e.Body, status: e.Status = "success", token: int | None = None) -> None:
        event = e.Event(body, step=request.event.step, status=status, resource=request.resource, fencing_token=token)
        request.owner.append(request.about, (event,))

    def _reply(
        self,
        request: Request,
        outcome: str,
        *,
        version: int | None = None,
        token: int | None = None,
        **fields: Any,
    ) -> None:
        body = e.ResourceReply(request.body.request_id, request.body.op, outcome, **fields)
        event = e.Event(
            body,
            step=request.event.step,
            resource=request.resource,
            resource_version=version,
            fencing_token=token,
        )
        self._answer(request.owner, request.body.from_partition, request.about, event)

    def _answer(self, owner: Owner, partition: int, about: About, event: e.Event) -> None:
        owner.answer(self._deployment.topics.commands, partition, about, event)
        self._wake()

    # --- ownership ---

    def adopt(self, owner: Owner) -> None:
        """Goes on holding what other partitions' jobs hold here, each for its whole TTL from now on."""
        for raw, value in list(owner.store.scan(Family.LENT)):
            place, held = Place(owner.partition, raw.decode()), s.decode_lent(value)
            self._waits.hold(place, held.holder)
            self._hold(place, owner, About(held.holder, held.attempt, raw), held.token, held.ttl / 1000)

    def drop_partition(self, partition: int) -> None:
        """Forgets a partition that passed on."""
        for place in [p for p in self._leases if p.partition == partition]:
            self._leases.pop(place).timer.cancel()
        for key in [k for k in self._asked if k[0] == partition]:
            self._asked.pop(key).end()
