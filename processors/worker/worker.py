"""The worker: owns partitions and runs one loop over them.

Gather (new records, due timers, what handlers did) → decide → commit → fold into the store → wake who waited. What
happens during a commit goes into the next one, so throughput grows with load while a lone job waits for one commit.
The loop never waits for a handler.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

import structlog

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.ports.log import AppendRefused, Fenced, LogError, LogUnavailable, Member, OutcomeUnknown, Record
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.deployment import Deployment

from .attempts import Attempts
from .committer import Committer
from .idle import IdleWatch
from .inbox import Inbox
from .intake import Intake
from .intake import Taken as TakenIn
from .owner import Owner
from .queue import ReadyQueue, age
from .report import Report, WorkerOptions
from .revive import release_held, revive
from .run import Run
from .takeover import Taken, take_over
from .timers import Timers

log = structlog.get_logger(__name__)

#: Waiting jobs of one partition kept in memory; beyond, its inputs stay on the log until there is room.
READY_MAX = 20_000
#: A partition whose commit or takeover failed is taken over anew after this many seconds.
RETRY_DELAY = 0.2
#: A hand-over waits no longer than this for what runs, whatever the grace, in seconds: the group waits with it.
HAND_OVER_GRACE = 10.0
#: Records taken in between two commits, so that a large backlog does not make one endless turn.
INTAKE_MAX = 1_000


class Worker:
    """A processor daemon's event loop. `run` returns when `stop` was called and all is handed back."""

    def __init__(self, deployment: Deployment, loaded: LoadedApp, options: WorkerOptions) -> None:
        self.deployment = deployment
        self.options = options
        self.worker_id = f"{options.name}-{os.getpid()}-{os.urandom(3).hex()}"
        self.report = Report()
        self.failure: BaseException | None = None
        self._loaded = loaded
        self._wakeup = asyncio.Event()
        self._owners: dict[int, Owner] = {}
        self._paused: set[int] = set()
        self._taking: set[int] = set()
        self._releasing: set[int] = set()
        self._starting: list[Run] = []
        self._ended: Counter[str] = Counter()
        self._commit: asyncio.Task[None] | None = None
        self._idle = IdleWatch(deployment.log, self._owners, self._stuck, self._is_busy, self.wake)
        self._stopping = False
        self._intake = Intake(deployment, loaded.app)
        self._attempts = Attempts(deployment, loaded.app, self._intake, self.wake, options.threads)
        self._order: deque[int] = deque()

    # --- life ---

    async def run(self, until: Callable[[Report], bool] | None = None) -> Report:
        """Runs until `stop`, or until `until(report)` is true. Raises what made the worker unable to go on."""
        loop = asyncio.get_running_loop()
        self._inbox = Inbox(loop, self.wake, self._release_partitions)
        topics = self.deployment.topics
        self._member: Member = self.deployment.log.join(
            self.deployment.group, (topics.jobs, topics.commands), self._inbox, name=self.worker_id
        )
        self._committer = Committer(self._member)
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
        try:
            async with asyncio.timeout(timeout):
                await self._wakeup.wait()
        except TimeoutError:
            pass
        self._wakeup.clear()

    def _timeout(self) -> float:
        if self._idle.may_be_idle():
            return 0.05
        now = self.deployment.clock.now_us()
        dues = [due for timers in self._attempts.timers.values() if (due := timers.next_due()) is not None]
        # Without a place, what runs wakes the loop when it ends.
        room = len(self._attempts.running) < self.options.concurrency
        longest = self._attempts.until_rate(0.5) if room else 0.5
        return max(0.0, min([longest, *((due - now) / 1e6 for due in dues)]))

    # --- gather ---

    def _gather(self) -> None:
        self._attempts.age = age(self.deployment.clock.monotonic())
        for partition in self._inbox.new_partitions():
            self._begin_takeover(partition)
        for record in self._inbox.take(INTAKE_MAX):
            owner = self._owners.get(record.partition)
            if owner is not None:
                self._take(owner, record)
        now = self.deployment.clock.now_us()
        for partition, timers in self._attempts.timers.items():
            for due, job_id in timers.due(now):
                self._due(self._owners[partition], job_id, due)
        self._start_ready()
        self._attempts.see_waiting(self._owners.values())
        self._attempts.flush_dirty()
        self._pace()

    def _take(self, owner: Owner, record: Record) -> None:
        self._follow(owner, self._intake.take(owner, record))

    def _follow(self, owner: Owner, taken: TakenIn) -> None:
        if taken.job_id is None:
            return
        first, last = taken.events[0].body, taken.events[-1].body
        if isinstance(first, e.JobAccepted) and isinstance(last, e.JobAccepted | e.UniqueTaken):
            if first.due is None:
                self._attempts.requeue(owner, taken.job_id)
            else:
                self._attempts.timers[owner.partition].add(first.due, taken.job_id)
        elif isinstance(first, e.RetryRequested):
            self._attempts.requeue(owner, taken.job_id)
        elif isinstance(first, e.CancelRequested):
            self._attempts.cancel(taken.job_id, first)
        elif isinstance(first, e.JobCancelled):
            self._attempts.forget(owner, taken.job_id)

    def _due(self, owner: Owner, job_id: str, due: int) -> None:
        job = owner.states.job(job_id)
        if job is not None and job.status in (s.DELAYED, s.RETRYING) and job.due == due:
            self._attempts.requeue(owner, job_id)

    def _start_ready(self) -> None:
        """Starts waiting jobs while there is room, partition by partition in turn."""
        room = self.options.concurrency - len(self._attempts.running)
        empty = 0
        while room > 0 and empty < len(self._order) and not self._stopping:
            partition = self._order[0]
            self._order.rotate(-1)
            if partition in self._releasing:
                empty += 1
                continue
            entry = self._attempts.queues[partition].pop(self._attempts.full_types())
            if entry is None:
                empty += 1
                continue
            empty = 0
            run = self._attempts.start(self._owners[partition], entry)
            if run is not None:
                self._starting.append(run)
                room -= 1

    def _pace(self) -> None:
        for partition in self._owners:
            # What is stuck may wait for days: it must not keep the commands out that would set it free.
            waiting = self._attempts.pressing(partition)
            if waiting > READY_MAX and partition not in self._paused:
                self._paused.add(partition)
                self._member.pause(partition)
            elif waiting < READY_MAX // 2 and partition in self._paused:
                self._paused.discard(partition)
                self._member.unpause(partition)

    # --- commit ---

    def _start_commit(self) -> None:
        if self._commit is not None:
            return
        owners = [owner for owner in self._owners.values() if owner.has_work]
        if owners:
            starting, self._starting = self._starting, []
            ended = self._attempts.take_ended()
            self._commit = asyncio.get_running_loop().create_task(self._run_commit(owners, starting, ended))

    async def _run_commit(self, owners: list[Owner], starting: list[Run], ended: Counter[str]) -> None:
        try:
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
            self.wake()

    # --- ownership ---

    def _begin_takeover(self, partition: int) -> None:
        if partition in self._taking or partition in self._owners:
            return
        self._taking.add(partition)
        asyncio.get_running_loop().create_task(self._take_over(partition))

    async def _take_over(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        stop = threading.Event()
        work = partial(
            take_over,
            self.deployment,
            self._committer.commit_now,
            partition,
            worker_id=self.worker_id,
            code_version=self._loaded.code_version,
            pause=stop.wait,
        )
        try:
            taken: Taken = await loop.run_in_executor(None, work)
        except (Fenced, OutcomeUnknown, AppendRefused, LogUnavailable) as error:
            # What passes on during its takeover is its next owner's business.
            if self._inbox.owns(partition):
                log.warning("takeover failed; trying again", partition=partition, error=str(error))
                loop.call_later(RETRY_DELAY, self._inbox.rejoin, [partition])
        except Exception as error:  # noqa: BLE001 - told to the operator by the daemon, with what to do
            self.failure = error
        else:
            if self._inbox.owns(partition) and not self._stopping:
                self._adopt(partition, taken)
            else:
                taken.owner.store.close()
        finally:
            self._taking.discard(partition)
            self.wake()

    def _adopt(self, partition: int, taken: Taken) -> None:
        owner = taken.owner
        self._owners[partition] = owner
        self._order.append(partition)
        found = self._intake.unknown.found
        self._attempts.queues[partition] = ReadyQueue(
            self._loaded.app.types, lambda entry: found(partition, entry.job_id, entry.type)
        )
        self._attempts.timers[partition] = Timers(owner.store)
        self._attempts.rates.adopt(partition, self.deployment.clock.monotonic())
        revive(owner, self._loaded.app, self._attempts, self._intake)
        for taken_in in release_held(owner, self._loaded.app, self._intake):
            self._follow(owner, taken_in)
        self._member.start(partition, taken.inputs)
        log.info("partition taken", partition=partition, epoch=owner.epoch, folded=taken.events)

    def _drop(self, partition: int) -> None:
        """Forgets a partition: whatever of it is not committed is nobody's decision."""
        owner = self._owners.pop(partition, None)
        if owner is None:
            return
        for run in [r for r in self._attempts.running.values() if r.owner is owner]:
            self._attempts.abandon(run)
        self._starting = [run for run in self._starting if run.owner is not owner]
        self._attempts.leases.drop_partition(partition)
        self._attempts.queues.pop(partition, None)
        self._intake.unknown.drop(partition)
        self._attempts.rates.drop(partition)
        self._attempts.timers.pop(partition, None)
        self._paused.discard(partition)
        self._order.remove(partition)
        owner.store.close()

    async def _release_partitions(self, partitions: list[int], lost: bool) -> None:
        """Hands partitions over: what runs may finish within the grace, is then handed back, and all is committed.

        When ownership is lost already there is nothing to wait for. A takeover under way ends before the next begins.
        """
        self._releasing.update(partitions)
        deadline = self.deployment.clock.monotonic() + (0.0 if lost else min(self.options.grace, HAND_OVER_GRACE))
        while self._in_use(partitions, runs=not lost) and self.deployment.clock.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if not lost:
            owned = [self._owners[p] for p in partitions if p in self._owners]
            for run in [r for r in self._attempts.running.values() if r.owner in owned]:
                self._attempts.hand_back(run, "the partition passes to another worker")
            await self._commit_all(owned)
        while self._commit is not None:
            await asyncio.wait([self._commit])
        for partition in partitions:
            self._drop(partition)
        self._releasing.difference_update(partitions)

    def _in_use(self, partitions: list[int], *, runs: bool) -> bool:
        """Whether a takeover or, with `runs`, a handler is under way on one of these."""
        if any(partition in self._taking for partition in partitions):
            return True
        return runs and any(run.owner.partition in partitions for run in self._attempts.running.values())

    async def _commit_all(self, owners: list[Owner]) -> None:
        """Commits until these owners have nothing left, the commit under way included."""
        while self._commit is not None or any(
            owner.has_work for owner in owners if self._owners.get(owner.partition) is owner
        ):
            self._start_commit()
            if self._commit is not None:
                await asyncio.wait([self._commit])

    # --- end ---

    async def _drain(self) -> None:
        self._stopping = True
        deadline = self.deployment.clock.monotonic() + self.options.grace
        while self._attempts.running and self.failure is None:
            left = deadline - self.deployment.clock.monotonic()
            if left <= 0:
                break
            self._attempts.flush_dirty()
            self._start_commit()
            self._wakeup.clear()
            try:
                async with asyncio.timeout(min(left, 0.5)):
                    await self._wakeup.wait()
            except TimeoutError:
                continue
        for run in list(self._attempts.running.values()):
            self._attempts.hand_back(run, "orderly shutdown")
        if self.failure is None:
            await self._commit_all(list(self._owners.values()))
        self._update_report()

    async def _close(self) -> None:
        self._inbox.stop()
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
        report.idle = self._idle.look()

    def _stuck(self, partition: int) -> int:
        return self._attempts.queues[partition].stuck

    def _is_busy(self) -> bool:
        if self._commit is not None or self._taking or self._inbox.busy or not self._owners:
            return True
        return not self._inbox.owns_only(self._owners)
