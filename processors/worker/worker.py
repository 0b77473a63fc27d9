"""The worker: owns partitions and runs one loop over them.

Gather (new records, due timers, what handlers did) → decide → commit → fold into the store → wake who waited. What
happens during a commit goes into the next one, so throughput grows with load while a lone job waits for one commit.
The loop never waits for a handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

from rewindq.engine.core import state as s
from rewindq.engine.ports.log import LogError, Member
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.deployment import Deployment

from ..scheduler.scheduler import Scheduler
from .attempts import Attempts
from .clocks import Clocks
from .committer import Committer
from .expiry import Expiry
from .home import Home
from .idle import IdleWatch
from .inbox import Inbox
from .intake import Intake
from .owner import Owner
from .parking import Parking
from .patience import see_waiting
from .queue import ReadyQueue
from .report import Report, WorkerOptions
from .revive import release_held, revive
from .starts import Starts
from .takeover import Taken, take_over
from .takeovers import RETRY_DELAY, Takeovers
from .timers import Timers

log = structlog.get_logger(__name__)

#: Waiting jobs of one partition kept in memory; beyond, its inputs stay on the log until there is room.
READY_MAX = 20_000
#: A hand-over waits no longer than this for what runs, whatever the grace, in seconds: the group waits with it.
HAND_OVER_GRACE = 10.0
#: Records taken in before jobs are started again, so that a large backlog does not hold them up.
INTAKE_MAX = 1_000
#: Bytes of a turn's records that inputs may make: what waits for the commit under way is all in memory.
TURN_BYTES = 16 * 1024 * 1024


class Worker:
    """A processor daemon's event loop. `run` returns when `stop` was called and all is handed back."""

    def __init__(self, deployment: Deployment, loaded: LoadedApp, options: WorkerOptions) -> None:
        self.deployment = deployment
        self.options = options
        self.worker_id = f"{options.name}-{os.getpid()}-{os.urandom(3).hex()}"
        self.report = Report(worker=self.worker_id)
        self.failure: BaseException | None = None
        self._loaded = loaded
        self._wakeup = asyncio.Event()
        self._owners: dict[int, Owner] = {}
        self._paused: set[int] = set()
        self._releasing: set[int] = set()
        self._ended: Counter[str] = Counter()
        self._commit: asyncio.Task[None] | None = None
        self._committing: list[Owner] = []
        self._stopping = False
        self._intake = Intake(deployment, loaded.app)
        self._attempts = Attempts(deployment, loaded.app, self._intake, self.wake, options)
        queues = self._attempts.queues
        self._idle = IdleWatch(deployment.log, self._owners, lambda p: queues[p].stuck, self._is_busy, self.wake)
        self._scheduler = Scheduler(deployment, loaded.app)
        self._expiry = Expiry(self._attempts)
        self._home = Home(deployment, self._attempts.waits, self.wake)
        self._intake.home, self._intake.remote = self._home, self._attempts.remote
        self._clocks = Clocks(deployment)
        self._parking = self._intake.parking = Parking(deployment, lambda t: self._committer.commit_now(t), self.wake)
        self._starts = Starts(self._attempts, self._owners, options.concurrency)

    # --- life ---

    async def run(self, until: Callable[[Report], bool] | None = None) -> Report:
        """Runs until `stop`, or until `until(report)` is true. Raises what made the worker unable to go on."""
        loop = asyncio.get_running_loop()
        topics = self.deployment.topics
        await self._clocks.begin()
        self._inbox = Inbox(loop, self.wake, self._release_partitions, urgent=topics.commands)
        self._member: Member = self.deployment.log.join(
            self.deployment.group, (topics.jobs, topics.commands), self._inbox, name=self.worker_id
        )
        self._committer = Committer(self._member)
        self._takeovers = Takeovers(self._inbox, self._take_over, self._adopt, self._fail, self.wake)
        self._inbox.start(self._member)
        try:
            while not self._stopping and self.failure is None:
                await self._pass()
                if until is not None and until(self.report):
                    break
            await self._drain()
        finally:
            await self._close()
        if self.failure is not None:
            raise self.failure
        return self.report

    def stop(self) -> None:
        """Ends the worker in order: nothing new starts, what runs may finish within the grace."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Something is to be gathered."""
        self._wakeup.set()

    async def _pass(self) -> None:
        self.failure = self.failure or self._inbox.error
        self._gather()
        self._start_commit()
        self._update_report()
        timeout = self._timeout()
        if timeout == 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wakeup.wait()
        self._wakeup.clear()

    def _timeout(self) -> float:
        if self._idle.may_be_idle():
            return 0.05
        now, scheduled = self.deployment.time.now_us(), self._scheduler.next_in()
        dues = [due for timers in self._attempts.timers.values() if (due := timers.next_due()) is not None]
        # Without a place, what runs wakes the loop when it ends.
        room = len(self._attempts.running) < self.options.concurrency
        longest = self._attempts.limits.until_rate(0.5) if room else 0.5
        return max(
            0.0, min([longest, *((due - now) / 1e6 for due in dues), *([] if scheduled is None else [scheduled])])
        )

    # --- gather ---

    def _gather(self) -> None:
        self._attempts.limits.tick()
        self._clocks.look(o for p, o in self._owners.items() if not self._scheduler.watches(p))
        for partition in self._inbox.new_partitions():
            if partition not in self._owners:
                self._takeovers.begin(partition)
        room = TURN_BYTES - sum(owner.open_bytes for owner in self._owners.values())
        for record in self._inbox.take(INTAKE_MAX, room):
            owner = self._owners.get(record.partition)
            if owner is not None:
                self._attempts.follow(owner, self._intake.take(owner, record))
        now = self.deployment.time.now_us()
        self._attempts.holds.settle(now)
        for partition, timers in self._attempts.timers.items():
            for due, job_id in timers.due(now):
                self._due(self._owners[partition], job_id, due)
        self._scheduler.plan()
        self._expiry.look(self._owners)
        if not self._stopping:
            self._starts.fill(self._releasing)
        see_waiting(self._attempts, self._intake, self._owners.values())
        self._attempts.flush_dirty()
        self._pace()

    def _due(self, owner: Owner, job_id: str, due: int) -> None:
        job = owner.states.job(job_id)
        if job is not None and job.status in (s.DELAYED, s.RETRYING) and job.due == due:
            self._attempts.requeue(owner, job_id)

    def _pace(self) -> None:
        # Commands are always read: a quarantine must get through when its jobs have filled the queue.
        inputs = (self.deployment.topics.jobs,)
        for partition in self._owners:
            # What is stuck, or waits for its rate, may wait for days: it must not keep other jobs out.
            waiting = self._attempts.limits.pressing(partition)
            if waiting > READY_MAX and partition not in self._paused:
                self._paused.add(partition)
                self._member.pause(partition, inputs)
            elif waiting < READY_MAX // 2 and partition in self._paused:
                self._paused.discard(partition)
                self._member.unpause(partition, inputs)

    # --- commit ---

    def _start_commit(self) -> None:
        if self._commit is not None:
            return
        self._committing = [owner for owner in self._owners.values() if owner.has_work]
        if self._committing:
            self._commit = asyncio.get_running_loop().create_task(self._run_commit())

    async def _run_commit(self) -> None:
        # Looked at in the step that closes the turns: what happened since the commit was asked for goes with them.
        owners = self._committing = [owner for owner in self._owners.values() if owner.has_work]
        starting = self._starts.take()
        ended = self._attempts.take_ended()
        try:
            if self._inbox.busy:
                self.wake()  # the commit closes the turns before it waits: there is room again
            if owners:
                self.report.records += await self._committer.commit(owners)
                self.report.turns += 1
            self._ended.update(ended)
            for run in starting:
                self._attempts.spawn(run)
        except LogError as error:
            # Fenced, refused: surely not done. Unknown: whoever owns the partition next reads the log's end and learns.
            log.warning("commit failed; its partitions are given up", error=str(error), kind=type(error).__name__)
            for owner in owners:
                self._drop(owner.partition)
            again = partial(self._inbox.rejoin, sorted(owner.partition for owner in owners))
            asyncio.get_running_loop().call_later(RETRY_DELAY, again)
        except Exception as error:  # noqa: BLE001 - a store that cannot be written ends the worker, by name
            self.failure = error
        finally:
            self._commit = None
            self._committing = []
            self.wake()

    # --- ownership ---

    def _take_over(self, partition: int) -> Taken:
        return take_over(
            self.deployment,
            self._committer.commit_now,
            partition,
            worker_id=self.worker_id,
            loaded=self._loaded,
            pause=threading.Event().wait,
        )

    def _fail(self, error: BaseException) -> None:
        self.failure = error

    def _adopt(self, partition: int, taken: Taken) -> None:
        owner = taken.owner
        if self._stopping or not self._inbox.owns(partition):
            owner.store.close()
            return
        self._owners[partition] = owner
        self._starts.adopt(partition)
        found = self._intake.unknown.found
        self._attempts.queues[partition] = ReadyQueue(
            self._loaded.app.types, lambda entry: found(partition, entry.job_id, entry.type)
        )
        self._attempts.timers[partition] = Timers(owner.store)
        for command in taken.quarantines:
            self._intake.operators.quarantine(owner, command)
        self._home.adopt(owner)
        self._parking.adopt(owner)
        self._attempts.limits.rates.adopt(partition, self.deployment.clock.monotonic())
        revive(owner, self._loaded.app, self._attempts, self._intake)
        for taken_in in release_held(owner, self._loaded.app, self._intake):
            self._attempts.follow(owner, taken_in)
        self._scheduler.adopt(owner)
        self._member.start(partition, taken.inputs)
        log.info("partition taken", partition=partition, epoch=owner.epoch, folded=taken.events)

    def _drop(self, partition: int) -> None:
        """Forgets a partition: whatever of it is not committed is nobody's decision."""
        owner = self._owners.pop(partition, None)
        if owner is None:
            return
        for run in [r for r in self._attempts.running.values() if r.owner is owner]:
            self._attempts.abandon(run)
        self._starts.drop(owner)
        self._attempts.holds.drop(owner)
        self._attempts.alone.drop((partition,))
        self._scheduler.drop(partition)
        keys = self._attempts.remote.claims.keys
        for kept in (self._attempts.leases, self._attempts.waits, self._home, keys):
            kept.drop_partition(partition)
        self._parking.drop(partition)
        self._attempts.queues.pop(partition, None)
        self._intake.unknown.drop(partition)
        self._attempts.limits.rates.drop(partition)
        self._attempts.timers.pop(partition, None)
        self._paused.discard(partition)
        owner.store.close()

    async def _release_partitions(self, partitions: list[int], lost: bool) -> None:
        """Hands partitions over: what runs may finish within the grace, is then handed back, and all is committed.

        When ownership is lost already there is nothing to wait for. A takeover under way ends before the next begins.
        """
        self._releasing.update(partitions)
        self._attempts.alone.drop(partitions)
        clock = self.deployment.clock.monotonic
        began = clock()
        deadline = began + (0.0 if lost else min(self.options.grace, HAND_OVER_GRACE))
        while self._in_use(partitions, runs=not lost) and clock() < deadline:
            await asyncio.sleep(0.02)
        if not lost:
            owned = [self._owners[p] for p in partitions if p in self._owners]
            for run in [r for r in self._attempts.running.values() if r.owner in owned]:
                self._attempts.hand_back(run, "the partition passes to another worker")
            await self._commit_all(owned)
        while self._commit is not None and any(owner.partition in partitions for owner in self._committing):
            await asyncio.wait([self._commit])
        for partition in partitions:
            self._drop(partition)
        self._releasing.difference_update(partitions)
        if not lost:
            self._handed_over(partitions, clock() - began)

    def _handed_over(self, partitions: list[int], seconds: float) -> None:
        self.report.handed_over(seconds)
        log.info("partitions handed over", partitions=partitions, seconds=round(seconds, 3))

    def _in_use(self, partitions: list[int], *, runs: bool) -> bool:
        """Whether a takeover or, with `runs`, a handler is under way on one of these."""
        if self._takeovers.any_of(partitions):
            return True
        return runs and any(run.owner.partition in partitions for run in self._attempts.running.values())

    async def _commit_all(self, owners: list[Owner]) -> None:
        """Commits until these owners have nothing left; what others commit meanwhile is not waited for."""
        while any(
            owner in self._committing or (owner.has_work and self._owners.get(owner.partition) is owner)
            for owner in owners
        ):
            self._start_commit()
            if self._commit is not None:
                await asyncio.wait([self._commit])

    # --- end ---

    async def _drain(self) -> None:
        self._stopping = True
        clock = self.deployment.clock.monotonic
        began, waited_for = clock(), len(self._attempts.running)
        while (self._attempts.running or self._takeovers) and self.failure is None:
            left = began + self.options.grace - clock()
            if left <= 0:
                break
            self._attempts.flush_dirty()
            self._start_commit()
            self._wakeup.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, 0.5)):
                    await self._wakeup.wait()
        for run in list(self._attempts.running.values()):
            self._attempts.hand_back(run, "orderly shutdown")
        if self.failure is None:
            await self._commit_all(list(self._owners.values()))
            if waited_for:
                self._handed_over(sorted(self._owners), clock() - began)
        self._update_report()

    async def _close(self) -> None:
        self._inbox.stop()
        if self._commit is not None:
            await asyncio.wait([self._commit])  # it writes to the stores
        await self._parking.close()
        for partition in list(self._owners):
            self._drop(partition)
        await asyncio.get_running_loop().run_in_executor(None, self._inbox.join)
        self._committer.close()
        self._member.close()
        self._attempts.shutdown()

    def _update_report(self) -> None:
        report = self.report
        ended = self._ended
        report.succeeded = ended[s.SUCCEEDED]
        report.failed = ended[s.INVESTIGATION] + ended[s.CANCELLED]
        report.retried = ended[s.RETRYING]
        report.owned = len(self._owners)
        queues = self._attempts.queues.values()
        report.blocked = sum(queue.blocked for queue in queues)
        report.unknown = sum(queue.unknown for queue in queues) + self._intake.unknown.count()
        report.held = sum(owner.states.held() for owner in self._owners.values())
        report.stopped, report.unparked = list(self._takeovers.stopped.values()), self._parking.waiting()
        report.idle = self._idle.look()

    def _is_busy(self) -> bool:
        known = [*self._owners, *self._takeovers.stopped]
        busy = self._commit is not None or self._takeovers or self._inbox.busy or self._parking.busy
        return bool(busy) or not known or not self._inbox.owns_only(known)
