"""Leases on resources that are at home on the worker's own partitions.

A lease is granted, renewed at a third of its TTL, and ended by its owner, all on the owner's monotonic clock. A job's
own resource is held implicitly for its attempt; `ctx.lease` on it gives the same token again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rewindq.engine.core import events as e
from rewindq.engine.effects.errors import AttemptEnded, LeaseUnavailable
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.leasing import LeaseHandle

from .deadlocks import Deadlocks
from .run import Run
from .waiting import Place, WaitQueues


class _Held(NamedTuple):
    run: Run
    handle: LeaseHandle
    step: str
    ttl: float
    since: float
    renewed: list[float]
    timer: list[asyncio.TimerHandle]


class _Waiter:
    """An attempt that waits. Implements `Waiter`."""

    def __init__(self, run: Run) -> None:
        self.job_id = run.job_id
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._run = run

    def alive(self) -> bool:
        """Whether it still waits."""
        return not self.granted.done() and not self._run.closed

    def grant(self) -> None:
        """The resource is held for it from now on."""
        self.granted.set_result(None)

    def was_granted(self) -> bool:
        """Whether the resource is held for it."""
        return self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None


class Leases:
    """Explicit leases of one worker, by (partition, resource)."""

    def __init__(
        self, deployment: Deployment, waits: WaitQueues, wake: Callable[[], None], deadlock_after: float
    ) -> None:
        """A lease that was waited for over `deadlock_after` seconds makes it look for a deadlock."""
        self.deadlocks = Deadlocks(deployment, waits, wake, deadlock_after)
        self._waits = waits
        self._wake = wake
        self._held: dict[tuple[int, str], _Held] = {}

    async def acquire(self, run: Run, step: str, resource: str, ttl: float, wait: float) -> LeaseHandle:
        """Holds a resource for the run, waiting up to `wait` seconds. Raises LeaseUnavailable naming the holder."""
        if resource == run.head.resource and run.token is not None:
            return LeaseHandle(resource, run.token)
        place = Place(run.owner.partition, resource)
        asked = run.clock.monotonic()
        holder = self._waits.holder(place)
        if holder is not None:
            requested = e.LeaseRequested(int(ttl * 1000), holder)
            run.flush((e.Event(requested, step=step, resource=resource),))
            self._wake()
            await self._wait(run, step, resource, wait, holder)
            if run.closed:
                self._waits.freed(place)
                raise AttemptEnded("the attempt ended while it waited for a lease")
        self._waits.hold(place, run.job_id)
        return self._grant(run, step, resource, ttl, int((run.clock.monotonic() - asked) * 1000))

    async def _wait(self, run: Run, step: str, resource: str, wait: float, holder: str) -> None:
        place = Place(run.owner.partition, resource)
        waiter = _Waiter(run)
        self._waits.join(place, waiter)
        try:
            with self.deadlocks.watch(run, step, resource, waiter.granted):
                async with asyncio.timeout(wait):
                    await waiter.granted
        except TimeoutError as error:
            refused = e.LeaseRefused(holder, int(wait * 1000), "not free within the wait")
            if not run.closed:
                run.flush((e.Event(refused, step=step, status="fail", resource=resource),))
                self._wake()
            self._unused(place, waiter)
            raise LeaseUnavailable.held(resource, holder, refused.waited, step) from error
        except asyncio.CancelledError:
            self._unused(place, waiter)
            raise
        finally:
            self._waits.leave(place, waiter)

    def _unused(self, place: Place, waiter: _Waiter) -> None:
        if waiter.was_granted():
            # In the very moment in which it was given up: nobody will use it.
            self._waits.freed(place)

    def _grant(self, run: Run, step: str, resource: str, ttl: float, waited: int) -> LeaseHandle:
        known = run.owner.states.lease(resource)
        token = (known.token if known is not None else 0) + 1
        acquired = e.LeaseAcquired(int(ttl * 1000), waited)
        run.flush((e.Event(acquired, step=step, resource=resource, fencing_token=token),))
        now = run.clock.monotonic()
        held = _Held(run, LeaseHandle(resource, token), step, ttl, now, [now], [])
        self._held[(run.owner.partition, resource)] = held
        run.leases.add(resource)
        self._schedule(held)
        self._wake()
        return held.handle

    def _schedule(self, held: _Held) -> None:
        held.timer[:] = [asyncio.get_running_loop().call_later(held.ttl / 3, self._renew, held)]

    def _renew(self, held: _Held) -> None:
        if held.run.closed or held.handle.lost:
            return
        now = held.run.clock.monotonic()
        if now - held.renewed[0] > held.ttl:
            # The loop itself was held up for longer than the TTL: nobody may rely on this lease any more.
            held.handle.lost = True
            self._end(held, e.LeaseExpired(held.run.job_id), "fail")
            # The run relied on it: `any_lost` stops its effects.
            held.run.leases.add(held.handle.resource)
            return
        held.renewed[0] = now
        renewed = e.LeaseRenewed(int(held.ttl * 1000))
        held.run.flush(
            (e.Event(renewed, step=held.step, resource=held.handle.resource, fencing_token=held.handle.token),)
        )
        self._wake()
        self._schedule(held)

    def release(self, run: Run, handle: LeaseHandle) -> None:
        """Gives a lease back. A late release changes nothing."""
        held = self._held.get((run.owner.partition, handle.resource))
        if held is None or held.handle is not handle or run.closed:
            return
        held_ms = int((run.clock.monotonic() - held.since) * 1000)
        self._end(held, e.LeaseReleased(held_ms), "success")

    def _end(self, held: _Held, body: e.Body, status: e.Status) -> None:
        resource = held.handle.resource
        event = e.Event(body, step=held.step, status=status, resource=resource, fencing_token=held.handle.token)
        held.run.flush((event,))
        self._forget(held)

    def end_run(self, run: Run) -> None:
        """Releases what an ended attempt still holds. Call before the attempt's last events are decided."""
        for resource in sorted(run.leases):
            held = self._held.get((run.owner.partition, resource))
            if held is not None and held.run is run:
                self._end(held, e.LeaseReleased(int((run.clock.monotonic() - held.since) * 1000)), "success")

    def drop_partition(self, partition: int) -> None:
        """Forgets all of a partition that passed on; its handles are lost."""
        for place, held in list(self._held.items()):
            if place[0] == partition:
                held.handle.lost = True
                held.timer[0].cancel()
                del self._held[place]

    def _forget(self, held: _Held) -> None:
        held.timer[0].cancel()
        held.run.leases.discard(held.handle.resource)
        self._held.pop((held.run.owner.partition, held.handle.resource), None)
        self._waits.freed(Place(held.run.owner.partition, held.handle.resource))

    def token_of(self, run: Run, resource: str) -> int | None:
        """The token under which the run holds a resource."""
        held = self._held.get((run.owner.partition, resource))
        return held.handle.token if held is not None and held.run is run else None

    def any_lost(self, run: Run) -> bool:
        """Whether a lease that the run relies on may be lost."""
        if not run.leases:
            return False
        now = run.clock.monotonic()
        for resource in run.leases:
            held = self._held.get((run.owner.partition, resource))
            if held is None or held.run is not run or held.handle.lost or now - held.renewed[0] > held.ttl:
                return True
        return False
