"""What a handler asks of resources that are at home on other partitions: requests out, replies in.

A request goes out in the turn that records it. When no reply comes in time the outcome is unknown, and that is safe:
the home decides in log order, so whatever the next attempt asks for stands behind it.

A lease counts here from a moment at which its home cannot yet have begun to count: when its request, or its last
confirmed renewal, was sent. So it is taken for lost here before its home lets it expire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.core.requests import CONFLICT, DONE, EXPIRED, FENCED, LEASE, LOAD, OWNED, RELEASE, RENEW, SAVE
from rewindq.engine.core.writes import encode_changes
from rewindq.engine.effects.errors import AttemptEnded, BadStep, LeaseUnavailable, NoAnswer, WriteRefused
from rewindq.engine.runtime.context import Aggregate
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.leasing import LeaseHandle

from .claims import Claims
from .deadlocks import Deadlocks
from .owner import About, Owner
from .run import Run

#: How long the home of a resource may take to answer, in seconds; a lease's wait comes on top.
ANSWER_MAX = 30.0
#: A lease that is waited for is asked for again this often, in seconds: its home may have passed to another worker.
ASK_AGAIN = 2.0


class _Pending:
    """A request whose reply has not come."""

    def __init__(self, run: Run, op: str, step: str, resource: str, home: int, request_id: str) -> None:
        self.run = run
        self.op = op
        self.step = step
        self.resource = resource
        self.home = home
        self.request_id = request_id
        self.sent = run.clock.monotonic()
        self.answer: asyncio.Future[e.Event] = asyncio.get_running_loop().create_future()


class _Away:
    """A lease that the run holds on another partition."""

    def __init__(self, pending: _Pending, handle: LeaseHandle, ttl: float, confirmed: float) -> None:
        self.pending = pending
        self.handle = handle
        self.ttl = ttl
        self.confirmed = confirmed
        self.renewals: deque[float] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def valid(self, now: float) -> bool:
        """Whether it can be relied on at `now`, monotonic seconds."""
        return not self.handle.lost and now - self.confirmed <= self.ttl


class Remote:
    """Requests of a worker's running attempts. Everything here runs in the event loop."""

    def __init__(
        self,
        deployment: Deployment,
        touched: Callable[[Run], None],
        wake: Callable[[], None],
        deadlocks: Deadlocks,
    ) -> None:
        self.claims = Claims(deployment, wake)
        self.deadlocks = deadlocks
        self._deployment = deployment
        self._touched = touched
        self._pending: dict[str, _Pending] = {}
        self._away: dict[str, _Away] = {}

    # --- steps ---

    async def load(self, run: Run, step: str, key: str) -> Aggregate:
        """An aggregate's newest version at its home. Raises NoAnswer."""
        event = await self._ask(run, LOAD, step, key)
        body: Any = event.body
        if body.outcome != DONE:
            raise NoAnswer(f"{step}: partition {body.home} refused: {body.reason}", step=step)
        data = values.decode(self._value(body) or b"{}")
        return Aggregate(key, event.resource_version or 0, data)

    async def save(self, run: Run, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Writes fields at their home, on an expected version, under the lease where there is one.

        Raises WriteRefused, NoAnswer (then nobody knows whether it was written), BadStep.
        """
        try:
            data, deleted = encode_changes(changes)
        except values.ValueRefused as error:
            raise BadStep(f"{step}: {error}", step=step) from error
        event = await self._ask(
            run, SAVE, step, key, self.token_of(run, key), changes=data, deleted=deleted, expected=expected
        )
        body: Any = event.body
        if body.outcome == DONE:
            return event.resource_version or 0
        if body.outcome in (CONFLICT, FENCED):
            raise WriteRefused.found(key, event.resource_version, expected, body.reason, step)
        raise NoAnswer(f"{step}: partition {body.home} refused: {body.reason}", step=step)

    async def acquire(self, run: Run, step: str, resource: str, ttl: float, wait: float) -> LeaseHandle:
        """Holds a resource for the run, waiting up to `wait` seconds for it. Raises LeaseUnavailable, NoAnswer."""
        pending = self._begin(run, LEASE, step, resource, None, ttl=int(ttl * 1000), wait=int(wait * 1000))
        with self.deadlocks.watch(run, step, resource, pending.answer, pending.request_id):
            event = await self._answered(pending, wait + ANSWER_MAX, {"ttl": int(ttl * 1000)}, wait)
        body: Any = event.body
        if body.outcome != DONE or event.fencing_token is None:
            raise LeaseUnavailable.elsewhere(resource, body.reason, body.home_waited, step)
        handle = LeaseHandle(resource, event.fencing_token)
        away = _Away(pending, handle, ttl, pending.sent + (body.home_waited or 0) / 1000)
        if not away.valid(run.clock.monotonic()):
            self._send(pending, RELEASE)
            raise LeaseUnavailable(f"{resource}: the answer took longer than the lease's TTL of {ttl:g} s", step=step)
        self._away[pending.request_id] = away
        self._schedule(away)
        return handle

    def release(self, run: Run, handle: LeaseHandle) -> bool:
        """Gives a lease back; False when it is not one of these."""
        away = next((one for one in self._away.values() if one.handle is handle), None)
        if away is None:
            return False
        if not run.closed:
            self._give_back(away)
        return True

    def token_of(self, run: Run, resource: str) -> int | None:
        """The token under which the run holds a resource elsewhere."""
        held = (away for away in self._away.values() if away.pending.run is run)
        return next((away.handle.token for away in held if away.handle.resource == resource), None)

    def any_lost(self, run: Run) -> bool:
        """Whether a lease that the run relies on may be lost."""
        if not self._away:
            return False
        now = run.clock.monotonic()
        return any(away.pending.run is run and not away.valid(now) for away in self._away.values())

    def end_run(self, run: Run, events: Iterable[e.Event]) -> None:
        """Gives back what an ended attempt holds or waits for. Call before `events`, its last ones, are decided."""
        self.claims.end_run(run, events)
        if self._away:
            for away in [one for one in self._away.values() if one.pending.run is run]:
                self._give_back(away)
        if self._pending:
            for pending in [one for one in self._pending.values() if one.run is run]:
                del self._pending[pending.request_id]
                if pending.op == LEASE:
                    self._send(pending, RELEASE)

    def abandon(self, run: Run) -> None:
        """Forgets an attempt whose partition has passed on: its leases end when their homes hear of the next owner."""
        for away in [one for one in self._away.values() if one.pending.run is run]:
            self._forget(away)
            away.handle.lost = True
        self._pending = {key: one for key, one in self._pending.items() if one.run is not run}

    def tell_owned(self, owner: Owner, about: About) -> None:
        """Tells the other partitions that this one has a new owner: what its lost attempts hold there is free then."""
        for partition in range(self._deployment.partitions):
            if partition != owner.partition:
                event = e.Event(e.ResourceRequest("", OWNED, owner.partition))
                owner.unnumbered(self._deployment.topics.commands, partition, replace(about, resource=None), event)

    # --- asking ---

    async def _ask(
        self, run: Run, op: str, step: str, resource: str, token: int | None = None, **fields: Any
    ) -> e.Event:
        pending = self._begin(run, op, step, resource, token, **fields)
        return await self._answered(pending, ANSWER_MAX, None, 0)

    def _begin(self, run: Run, op: str, step: str, resource: str, token: int | None, **fields: Any) -> _Pending:
        home = partition_for(resource.encode(), self._deployment.partitions)
        pending = _Pending(run, op, step, resource, home, run.next_request())
        said = {name: value for name, value in fields.items() if name in ("changes", "deleted", "expected")}
        requested = e.RemoteRequested(pending.request_id, op, home, **said)
        run.flush((e.Event(requested, step=step, resource=resource, fencing_token=token),))
        self._pending[pending.request_id] = pending
        self._send(pending, op, token, **fields)
        return pending

    def _send(self, pending: _Pending, op: str, token: int | None = None, **fields: Any) -> None:
        """Appends a request to the home's commands, with the open turn."""
        run = pending.run
        owner = run.owner
        body = e.ResourceRequest(pending.request_id, op, owner.partition, **fields)
        about = About.job(run.job_id, run.head, run.attempt, owner.partition, run.last_seq)
        about = replace(about, key=pending.resource.encode(), resource=None)
        event = e.Event(body, step=pending.step, resource=pending.resource, fencing_token=token)
        owner.unnumbered(self._deployment.topics.commands, pending.home, about, event)
        self._touched(run)

    async def _answered(self, pending: _Pending, patience: float, again: dict[str, Any] | None, wait: float) -> e.Event:
        """The answer; with `again`, the request is sent again now and then. Raises NoAnswer, AttemptEnded."""
        run, deadline = pending.run, pending.sent + patience
        try:
            while (left := deadline - run.clock.monotonic()) > 0:
                await asyncio.wait({pending.answer}, timeout=left if again is None else min(left, ASK_AGAIN))
                if run.closed:
                    raise AttemptEnded(f"the attempt ended while it waited for {pending.resource}")
                if pending.answer.done():
                    return pending.answer.result()
                if again is not None:
                    open_ms = max(0, int((pending.sent + wait - run.clock.monotonic()) * 1000))
                    self._send(pending, pending.op, wait=open_ms, **again)
        finally:
            if self._pending.pop(pending.request_id, None) is not None and pending.op == LEASE and not run.closed:
                self._send(pending, RELEASE)
        raise NoAnswer(
            f"{pending.step}: partition {pending.home}, home of {pending.resource}, did not answer within "
            f"{patience:g} s; is a worker running for it? `rewindq doctor` tells",
            step=pending.step,
        )

    def _value(self, body: e.RemoteAnswered) -> bytes | None:
        if body.value_ref is None:
            return body.value
        assert self._deployment.blobs is not None
        return self._deployment.blobs.get(body.value_ref)

    # --- answers ---

    def take(self, owner: Owner, record: e.EventRecord, event: e.Event, body: e.ResourceReply) -> None:
        """Takes a reply in: wakes the step that waits for it. A lease for nobody is given back."""
        owner.heard(record.lamport)
        away = self._away.get(body.request_id)
        if away is not None:
            self._renewed(away, body)
            return
        pending = self._pending.get(body.request_id)
        if pending is None or pending.op != body.op or pending.run.closed or pending.run.owner is not owner:
            if body.op == LEASE and body.outcome == DONE:
                self._refuse_grant(owner, record, event, body)
            return
        if pending.answer.done():
            return
        del self._pending[body.request_id]
        answered = self._record(pending, event, body)
        pending.answer.set_result(answered)

    def _record(self, pending: _Pending, event: e.Event, body: e.ResourceReply) -> e.Event:
        waited = int((pending.run.clock.monotonic() - pending.sent) * 1000)
        said = e.RemoteAnswered(
            body.request_id,
            body.op,
            pending.home,
            body.outcome,
            waited,
            body.waited,
            body.reason,
            body.value,
            body.value_ref,
            body.position,
        )
        answered = e.Event(
            said,
            step=pending.step,
            status="success" if body.outcome == DONE else "fail",
            resource=pending.resource,
            resource_version=event.resource_version,
            fencing_token=event.fencing_token,
        )
        pending.run.record(answered)
        self._touched(pending.run)
        return answered

    def _refuse_grant(self, owner: Owner, record: e.EventRecord, event: e.Event, body: e.ResourceReply) -> None:
        """A lease was granted to an attempt that is over."""
        resource = event.resource or ""
        home = partition_for(resource.encode(), self._deployment.partitions)
        about = About.asking(record, resource.encode())
        given = e.Event(e.ResourceRequest(body.request_id, RELEASE, owner.partition), resource=resource)
        owner.unnumbered(self._deployment.topics.commands, home, about, given)

    # --- held leases ---

    def _schedule(self, away: _Away) -> None:
        away.timer = asyncio.get_running_loop().call_later(away.ttl / 3, self._renew, away)

    def _renew(self, away: _Away) -> None:
        run = away.pending.run
        if run.closed or away.handle.lost:
            return
        now = run.clock.monotonic()
        if not away.valid(now):
            self._lose(away, f"no renewal was confirmed within its TTL of {away.ttl:g} s")
            return
        away.renewals.append(now)
        self._send(away.pending, RENEW)
        self._schedule(away)

    def _renewed(self, away: _Away, body: e.ResourceReply) -> None:
        if body.op == RENEW and body.outcome == DONE:
            away.confirmed = away.renewals.popleft()
        elif body.outcome == EXPIRED:
            self._lose(away, body.reason or "the lease has ended")

    def _lose(self, away: _Away, reason: str) -> None:
        """It stays with the run, whose effects and writes it stops."""
        if away.handle.lost:
            return
        away.handle.lost = True
        pending = away.pending
        body = e.ResourceReply(pending.request_id, LEASE, EXPIRED, reason)
        self._record(pending, e.Event(body, fencing_token=away.handle.token), body)

    def _give_back(self, away: _Away) -> None:
        pending = away.pending
        self._forget(away)
        if away.handle.lost:
            return
        requested = e.RemoteRequested(pending.request_id, RELEASE, pending.home)
        token = away.handle.token
        pending.run.flush((e.Event(requested, step=pending.step, resource=pending.resource, fencing_token=token),))
        self._send(pending, RELEASE)

    def _forget(self, away: _Away) -> None:
        if away.timer is not None:
            away.timer.cancel()
        self._away.pop(away.pending.request_id, None)
