"""Jobs that wait for each other's leases: probes of this worker's waiting requests, and the way of others' through it.

A request that holds something and has waited for a while sends a probe to the home of what it waits for
(`engine/core/deadlock.py` has the rules). Partitions of one worker and of others are asked alike: through the commands
topic, unless the next edge is known on the same partition. Nothing of a probe is recorded but a cycle's end, on the
trace of the job that gives way; the topic itself keeps the rest, and a probe that is lost is sent again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rewindq.engine.core import events as e
from rewindq.engine.core.deadlock import (
    HOLDER,
    HOME,
    VICTIM,
    BadPath,
    Link,
    Path,
    decode_path,
    detected,
    encode_path,
    follow,
    victim,
)
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.effects.errors import Deadlock
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.leasing import enclosing

from .owner import About, Owner
from .run import Run
from .waiting import Place, WaitQueues

if TYPE_CHECKING:
    from .home import Home

#: A request that waits on is probed again after twice the time, and no longer than this, in seconds.
AGAIN_MAX = 30.0
#: What probes have passed through, kept so that one which came by several ways goes on once.
SEEN_MAX = 10_000


class _Waiting:
    """A lease request of a running attempt, from when it is asked for until it has its answer."""

    def __init__(self, run: Run, step: str, resource: str, request_id: str, answer: asyncio.Future[Any]) -> None:
        self.run = run
        self.step = step
        self.resource = resource
        self.request_id = request_id
        self.answer = answer
        self.probes = 0
        self._under = enclosing()

    def alive(self) -> bool:
        """Whether it waits."""
        return not self.answer.done() and not self.run.closed

    def holds_anything(self) -> bool:
        """Whether its job keeps anything from others until it has its answer."""
        return self.run.token is not None or any(not lease.lost for lease in self._under)

    def holds(self, resource: str) -> bool:
        """Whether its job keeps this from others until it has its answer."""
        if resource == self.run.head.resource and self.run.token is not None:
            return True
        return any(lease.resource == resource and not lease.lost for lease in self._under)

    def link(self, holds: str | None) -> Link:
        """It as an edge."""
        run = self.run
        return Link(self.request_id, run.job_id, run.attempt, run.owner.partition, holds, self.resource)


class Deadlocks:
    """Edge chasing of one worker. Everything here runs in the event loop."""

    def __init__(
        self,
        deployment: Deployment,
        waits: WaitQueues,
        wake: Callable[[], None],
        after: float,
    ) -> None:
        """A request sends its first probe `after` seconds. Raises ValueError where that is no time."""
        if not after > 0:
            raise ValueError(f"deadlock_after must be above 0 seconds, got {after!r}")
        self._deployment = deployment
        self._waits = waits
        self._wake = wake
        self._after = after
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    # --- requests that wait ---

    @contextmanager
    def watch(
        self, run: Run, step: str, resource: str, answer: asyncio.Future[Any], request_id: str | None = None
    ) -> Iterator[None]:
        """While a lease request waits for its answer, which becomes a Deadlock if it has to give way."""
        waiting = _Waiting(run, step, resource, request_id or run.next_request(), answer)
        mine = self._waiting.setdefault(run.job_id, {})
        mine[waiting.request_id] = waiting
        timer = _Timer(self._after, lambda: self._probe(waiting))
        try:
            yield
        finally:
            timer.cancel()
            del mine[waiting.request_id]
            if not mine and self._waiting.get(run.job_id) is mine:
                del self._waiting[run.job_id]

    def _probe(self, waiting: _Waiting) -> None:
        # One that keeps nothing from anybody is in no cycle, whatever it waits for.
        if waiting.alive() and waiting.holds_anything():
            waiting.probes += 1
            self._to_home(waiting.run.owner, f"{waiting.request_id}#{waiting.probes}", (waiting.link(None),))

    def _find(self, owner: Owner, link: Link) -> _Waiting | None:
        found = self._waiting.get(link.job_id, {}).get(link.request_id)
        return found if found is not None and found.alive() and found.run.owner is owner else None

    # --- edges, each where it is known ---

    def take(self, owner: Owner, record: e.EventRecord, body: e.LeaseProbe, home: Home) -> str | None:
        """Takes a probe on, unless it comes from a worker that was replaced. Why it cannot be read, None: it can."""
        owner.heard(record.lamport)
        try:
            path = decode_path(body.path)
        except BadPath as error:
            return f"holds a probe whose path cannot be read: {error}"
        if record.epoch < owner.states.peers.get(body.from_partition, 0):
            return None
        if body.stage == HOME:
            if home.waits(owner, path[-1].request_id):
                self._at_home(owner, body.probe, path)
        elif body.stage == HOLDER:
            self._at_holder(owner, body.probe, path, body.holder or "")
        elif body.stage == VICTIM:
            self._at_victim(owner, path)
        else:
            return f"holds a probe at stage {body.stage!r}, and there are {HOME}, {HOLDER}, {VICTIM}"
        return None

    def _to_home(self, owner: Owner, probe: str, path: Path) -> None:
        home = partition_for(path[-1].waits.encode(), self._deployment.partitions)
        if home == owner.partition:
            self._at_home(owner, probe, path)
        else:
            self._send(owner, home, e.LeaseProbe(HOME, probe, owner.partition, encode_path(path)), path)

    def _at_home(self, owner: Owner, probe: str, path: Path) -> None:
        """Who holds what the path's last one waits for?"""
        resource = path[-1].waits
        holder = self._waits.holder(Place(owner.partition, resource))
        if holder is None:
            return
        lent = owner.states.lent(resource)
        partition = owner.partition if lent is None else lent.partition
        if partition == owner.partition:
            self._at_holder(owner, probe, path, holder)
        else:
            self._send(owner, partition, e.LeaseProbe(HOLDER, probe, owner.partition, encode_path(path), holder), path)

    def _at_holder(self, owner: Owner, probe: str, path: Path, holder: str) -> None:
        """What does the holder itself wait for, while it holds that?"""
        resource = path[-1].waits
        found = [
            waiting.link(resource)
            for waiting in self._waiting.get(holder, {}).values()
            if waiting.alive() and waiting.run.owner is owner and waiting.holds(resource)
        ]
        cycles, paths = follow(path, found)
        for cycle in cycles:
            chosen = victim(cycle)
            if chosen.partition == owner.partition:
                self._at_victim(owner, cycle)
            else:
                body = e.LeaseProbe(VICTIM, probe, owner.partition, encode_path(cycle))
                self._send(owner, chosen.partition, body, cycle)
        for longer in paths:
            if self._first_time(probe, longer[-1]):
                self._to_home(owner, probe, longer)

    def _first_time(self, probe: str, link: Link) -> bool:
        passed = (probe, link.request_id)
        if passed in self._seen:
            return False
        self._seen[passed] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return True

    def _at_victim(self, owner: Owner, cycle: Path) -> None:
        """Ends the cycle, if the one that is to give way still waits for the same while it holds the same."""
        chosen = victim(cycle)
        waiting = self._find(owner, chosen)
        if waiting is None or chosen.holds is None or not waiting.holds(chosen.holds):
            return
        body = detected(cycle)
        waiting.run.flush((e.Event(body, step=waiting.step, status="fail", resource=waiting.resource),))
        waiting.answer.set_exception(Deadlock(body.reason, step=waiting.step))
        waiting.answer.exception()  # seen: an attempt that ends in this very moment asks for no answer
        self._wake()

    def _send(self, owner: Owner, partition: int, body: e.LeaseProbe, path: Path) -> None:
        first, resource = path[0], path[-1].waits
        about = About(first.job_id, first.attempt, resource.encode())
        owner.unnumbered(self._deployment.topics.commands, partition, about, e.Event(body, resource=resource))
        self._wake()


class _Timer:
    """Calls a function after a time, and again after twice that, and so on."""

    def __init__(self, gap: float, call: Callable[[], None]) -> None:
        self._gap = gap
        self._call = call
        self._start()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._gap, self._fire)

    def _fire(self) -> None:
        self._gap = min(2 * self._gap, max(self._gap, AGAIN_MAX))
        self._start()
        self._call()

    def cancel(self) -> None:
        """It calls no more."""
        self._timer.cancel()
