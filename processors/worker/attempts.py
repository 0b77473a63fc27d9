"""Attempts: starting them, running their handlers, and deciding what their end means."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog
from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.blocking import with_block
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.secrets import secret_texts
from rewindq.engine.effects.errors import AttemptEnded, StepError
from rewindq.engine.runtime.app import App, JobType
from rewindq.engine.runtime.blocking import BlockingContext
from rewindq.engine.runtime.context import Context
from rewindq.engine.runtime.deployment import BodyTooLarge, Deployment
from rewindq.engine.runtime.ends import ResultRefused, encode_result, failure_of

from .intake import Intake, payload_bytes
from .leases import Leases
from .owner import About, Owner
from .queue import Ready, ReadyQueue, age, ready
from .rates import Rates
from .run import Run
from .session import LiveSession
from .timers import Timers
from .unknown import note

log = structlog.get_logger(__name__)
_NO_TYPES: frozenset[str] = frozenset()


class Attempts:
    """All running attempts of a worker. Everything here runs in the event loop."""

    def __init__(
        self, deployment: Deployment, app: App, intake: Intake, wake: Callable[[], None], threads: int
    ) -> None:
        self.deployment = deployment
        self.app = app
        self.wake = wake
        self.queues: dict[int, ReadyQueue] = {}
        self.timers: dict[int, Timers] = {}
        self.leases = Leases(self.queues, wake)
        self.running: dict[str, Run] = {}
        #: The present step of time, for what begins to wait.
        self.age = age(deployment.clock.monotonic())
        self.by_type: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        types = app.types.values()
        self.rates = Rates(app, deployment.partitions)
        #: Limits for a worker, and those for each key, by type: most apps have none.
        self._strict = {t.name for t in types if t.resource is not None or t.homed}
        self._limits = {t.name: t.concurrency for t in types if t.concurrency and t.concurrency_key is None}
        self._limited = bool(self._limits) or any(t.rate is not None for t in types)
        self._key_limits = {t.name: t.concurrency or 1 for t in types if t.concurrency_key is not None}
        self._intake = intake
        self._draw = random.Random()
        self._dirty: set[Run] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rewindq-handler")
        self._effects = ThreadPoolExecutor(threads, thread_name_prefix="rewindq-effect")

    # --- starting ---

    def full_types(self) -> frozenset[str] | set[str]:
        """Job types at their concurrency limit in this worker, or that have used their rate up."""
        if not self._limited:
            return _NO_TYPES
        full = {name for name, limit in self._limits.items() if self.by_type[name] >= limit}
        full.update(self.rates.used_up(self.deployment.clock.monotonic()))
        return full

    def start(self, owner: Owner, entry: Ready) -> Run | None:
        """Decides the next attempt of a waiting job; `spawn` its handler when that is durable.

        One that cannot be run as its type's rules want it is parked.
        """
        job = owner.states.job(entry.job_id)
        head = owner.states.head(entry.job_id)
        assert job is not None and head is not None
        about = About.job(entry.job_id, head, job.attempt + 1, owner.partition, job.last_seq)
        job_type = self.app.types[head.type]
        missed = self._missed(job_type, head) if head.type in self._strict else None
        if missed is not None:
            self._leave(owner, head)
            self._free(owner, head.resource)
            reason = f"it was accepted without {missed}, by a worker that did not know it; submit it under a new id"
            self._park(owner, replace(about, attempt=job.attempt), FailureClass.VALIDATION, reason)
            return None
        lease = owner.states.lease(head.resource) if head.resource is not None else None
        timeout_ms = None if job_type.timeout is None else int(job_type.timeout * 1000)
        event = d.decide_start(job, lease, head.resource, timeout_ms)
        owner.append(about, (event,))
        run = Run(owner, entry.job_id, head, job.attempt + 1, job_type, event.fencing_token, self.deployment.clock)
        self.running[entry.job_id] = run
        self.by_type[head.type] += 1
        if job_type.rate is not None:
            self.rates.reserve(head.type)
        return run

    def _missed(self, job_type: JobType, head: s.JobHead) -> str | None:
        """Which of its type's rules a job was accepted without: by a worker that did not know the type, or the rule."""
        if job_type.resource is not None and head.resource is None:
            return "its resource"
        if not job_type.homed:
            return None
        try:
            raw = payload_bytes(self.deployment, head.payload, head.payload_ref)
            key = job_type.key_of(job_type.model.model_validate_json(raw))
        except Exception:  # noqa: BLE001 - its attempt will fail in the same way, and tell it as any failure
            return None
        return None if key == head.key else f"the key {key!r} that its type's limits need"

    def spawn(self, run: Run) -> None:
        """Runs the handler of an attempt whose start is durable."""
        if run.job_type.rate is not None:
            self.rates.spend(run.head.type, run.clock.monotonic(), starts=not run.closed)
        if run.closed:
            return
        loop = asyncio.get_running_loop()
        run.began = run.clock.monotonic()
        run.task = loop.create_task(self._execute(run))
        if run.job_type.timeout is not None:
            run.timer = loop.call_later(run.job_type.timeout, self._timed_out, run)

    async def _execute(self, run: Run) -> None:
        session = LiveSession(run, self, self._effects)
        try:
            raw = payload_bytes(self.deployment, run.head.payload, run.head.payload_ref)
            payload = run.job_type.model.model_validate_json(raw)
            if run.head.secrets:
                run.secrets = secret_texts(raw, run.head.secrets)
            context = Context(session)
            if run.job_type.is_async:
                result = await run.job_type.function(context, payload)
            else:
                loop = asyncio.get_running_loop()
                blocking = BlockingContext(context, loop)
                result = await loop.run_in_executor(self._pool, run.job_type.function, blocking, payload)
            if run.closed:
                return
            self._succeed(run, result)
        except AttemptEnded as error:
            if not run.closed:
                self._fail(run, StepLost(str(error)))
        except asyncio.CancelledError:
            if not run.closed:
                self._fail(run, StepLost("the handler was cancelled from inside"))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome of its attempt
            if not run.closed:
                self._fail(run, error)

    # --- ends ---

    def _succeed(self, run: Run, result: object) -> None:
        try:
            data = encode_result(result)
            inline, ref = self.deployment.large(data)
        except (values.ValueRefused, BodyTooLarge) as error:
            raise ResultRefused(f"the result cannot be recorded: {error}") from error
        run.flush()
        doubts = self._doubts(run, "the handler returned while the call was under way")
        if doubts:
            # Not a success that anybody can vouch for: the handler did not await what it started.
            reason = f"the handler returned while effect {doubts[0].step!r} was under way; await every effect"
            failure = d.AttemptFailure(FailureClass.IN_DOUBT, reason, doubts[0].step, None, run.duration, terminal=True)
            self._failed(run, failure, doubts)
            return
        self._end(run, (e.Event(e.JobSucceeded(inline, ref, run.duration)),), s.SUCCEEDED)

    def _fail(self, run: Run, error: BaseException) -> None:
        failure = failure_of(self.app, error, run.secrets, run.duration)
        run.flush()
        self._failed(run, failure, self._doubts(run, "the attempt ended before the call's outcome was recorded"))

    def _failed(self, run: Run, failure: d.AttemptFailure, doubts: tuple[e.Event, ...]) -> None:
        owner = run.owner
        job = owner.states.job(run.job_id)
        assert job is not None
        now = self.deployment.clock.now_us()
        events = d.decide_failure(job, failure, run.job_type.retry, now, self._draw.random())
        events = with_block(events, job, run.head.resource, run.job_type.blocks_key)
        last = events[-1].body
        self._end(run, (*doubts, *events), s.RETRYING if isinstance(last, e.RetryScheduled) else s.INVESTIGATION)
        if isinstance(last, e.RetryScheduled):
            self.timers[owner.partition].add(last.due, run.job_id)
        else:
            self._intake.investigate(owner, self._about(run), events[-1])

    def _timed_out(self, run: Run) -> None:
        if run.closed:
            return
        reason = f"no result within {run.job_type.timeout:g} s"
        failure = d.AttemptFailure(FailureClass.TIMEOUT, reason, None, None, run.duration)
        self._abort(run)
        self._failed(run, failure, self._doubts(run, "the attempt timed out in the middle of the call"))

    def cancel(self, job_id: str, body: e.CancelRequested) -> None:
        """Ends a running attempt for an operator. A call under way leaves its effect in doubt, for a person."""
        run = self.running.get(job_id)
        if run is None or run.closed:
            return
        self._abort(run)
        doubts = self._doubts(run, "the job was cancelled in the middle of the call")
        if not doubts:
            self._end(
                run,
                (e.Event(e.JobCancelled(body.reason, body.actor, body.command_id), status="fail"),),
                s.CANCELLED,
            )
            return
        reason = f"cancelled ({body.reason}) while a call was under way: {doubts[0].step} is in doubt"
        events = d.investigation(FailureClass.IN_DOUBT, reason, doubts[0].step)
        job = run.owner.states.job(job_id)
        assert job is not None
        events = with_block(events, job, run.head.resource, run.job_type.blocks_key)
        self._end(run, (*doubts, *events), s.INVESTIGATION)
        self._intake.investigate(run.owner, self._about(run), events[-1])

    def hand_back(self, run: Run, reason: str) -> None:
        """Gives a job back without using up an attempt (orderly shutdown, hand-over)."""
        if run.closed:
            return
        self._abort(run)
        doubts = self._doubts(run, f"{reason} in the middle of the call")
        self._end(run, (*doubts, e.Event(e.AttemptHandedBack(reason))), s.WAITING)
        self.requeue(run.owner, run.job_id)

    def abandon(self, run: Run) -> None:
        """Stops an attempt whose partition has passed on: nothing is decided any more."""
        run.close()
        if run.task is not None:
            run.task.cancel()
        self.running.pop(run.job_id, None)
        self.by_type[run.head.type] -= 1
        self._dirty.discard(run)

    def _abort(self, run: Run) -> None:
        run.flush()
        self.leases.end_run(run)
        run.close()
        if run.task is not None:
            run.task.cancel()

    def _doubts(self, run: Run, reason: str) -> tuple[e.Event, ...]:
        return d.doubts(run.owner.states.open_effects(run.job_id), reason)

    def _end(self, run: Run, events: tuple[e.Event, ...], outcome: str) -> None:
        if not run.closed:
            run.flush()
            self.leases.end_run(run)
            run.close()
        run.flush(events)
        self._dirty.discard(run)
        self.running.pop(run.job_id, None)
        self.by_type[run.head.type] -= 1
        self._ended[outcome] += 1
        if run.job_type.blocks_key:
            self.see_block(run.owner, run.head.resource)
        self._free(run.owner, run.head.resource)
        if self._key_limits:
            self._leave(run.owner, run.head)
        self.wake()

    def _leave(self, owner: Owner, head: s.JobHead) -> None:
        if head.type in self._key_limits:
            self.queues[owner.partition].leave(head.key)

    def _free(self, owner: Owner, resource: str | None) -> None:
        if resource is not None:
            if self.queues[owner.partition].blocks(resource):
                self.see_block(owner, resource)
            self.leases.freed(owner.partition, resource)

    def see_block(self, owner: Owner, resource: str | None) -> None:
        """Tells the queue which failed job a resource's later jobs wait behind now, if any."""
        if resource is not None:
            block = owner.states.block(resource)
            self.queues[owner.partition].block(resource, None if block is None else block.jobs[0][0])

    def _about(self, run: Run) -> About:
        return About.job(run.job_id, run.head, run.attempt, run.owner.partition, run.owner.seq - 1)

    def _park(self, owner: Owner, about: About, kind: FailureClass, reason: str) -> None:
        events = d.investigation(kind, reason, None)
        owner.append(about, events)
        self._intake.investigate(owner, about, events[-1])

    # --- what waits for more than a place ---

    def pressing(self, partition: int) -> int:
        """Waiting jobs that will run as soon as there is room: those that keep further ones on the log."""
        queue = self.queues[partition]
        rated = sum(self.rates.waiting(partition, queue).values()) if self.rates else 0
        return len(queue) - queue.stuck - rated

    def until_rate(self, most: float) -> float:
        """Seconds until a job that waits for its rate may start, at most so many."""
        if not self.rates:
            return most
        now = self.deployment.clock.monotonic()
        due = self.rates.next_at(self.queues, now)
        return most if due is None else min(most, max(0.001, due - now))

    def see_waiting(self, owners: Iterable[Owner]) -> None:
        """Notes what waits for its rate or a capable worker, and parks what has waited for that too long."""
        if not self.rates and not self._intake.unknown:
            return
        for owner in owners:
            for name in self.rates.waiting(owner.partition, self.queues[owner.partition]):
                note(owner, name, self.rates.reason(name))
            self._see_unknown(owner)

    def _see_unknown(self, owner: Owner) -> None:
        unknown, wait = self._intake.unknown, self.deployment.settings.unknown_type_wait
        for late in unknown.overdue(owner, self.deployment.clock.monotonic(), wait):
            reason = (
                f"unknown job type {late.type!r}: no worker that knows it came within {wait:g} s; "
                f"this worker's app has: {unknown.known()}"
            )
            if unknown.holds(owner.partition, late.job_id):
                if self._intake.held_for_later(owner, late.job_id):
                    unknown.found(owner.partition, late.job_id, late.type)
                else:
                    self._intake.end_hold(owner, late.job_id, reason, (FailureClass.VALIDATION, reason))
            else:
                self._park_unknown(owner, late.job_id, reason)

    def _park_unknown(self, owner: Owner, job_id: str, reason: str) -> None:
        job, head = owner.states.job(job_id), owner.states.head(job_id)
        if job is None or head is None or not self.queues[owner.partition].is_unknown(job_id):
            return
        self.queues[owner.partition].remove(job_id)
        about = About.job(job_id, head, job.attempt, owner.partition, job.last_seq)
        self._park(owner, about, FailureClass.VALIDATION, reason)

    # --- bookkeeping ---

    def requeue(self, owner: Owner, job_id: str) -> None:
        """Puts a job that waits (again) into the ready queue."""
        head = owner.states.head(job_id)
        assert head is not None
        entry = ready(head.priority, head.accepted_seq, job_id, head.type, head.resource, since=self.age)
        if self._key_limits and head.type in self._key_limits:
            entry = entry._replace(group=head.key, limit=self._key_limits[head.type])
        self.queues[owner.partition].push(entry)

    def forget(self, owner: Owner, job_id: str) -> None:
        """A job that did not run was cancelled."""
        self.queues[owner.partition].remove(job_id)
        head = owner.states.head(job_id)
        if head is not None and head.resource is not None and self.queues[owner.partition].blocks(head.resource):
            self.see_block(owner, head.resource)

    def touched(self, run: Run) -> None:
        """The run has events that must not wait for its next step."""
        self._dirty.add(run)
        self.wake()

    def take_ended(self) -> Counter[str]:
        """Attempts that ended since the last call, by the job's status; they count once their turn is durable."""
        ended, self._ended = self._ended, Counter()
        return ended

    def flush_dirty(self) -> None:
        """Decides what touched runs have buffered, before a turn closes."""
        for run in self._dirty:
            if not run.closed:
                run.flush()
        self._dirty.clear()

    def shutdown(self) -> None:
        """Frees the threads; a handler that hangs in one is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._effects.shutdown(wait=False, cancel_futures=True)


class StepLost(StepError):
    """The handler's attempt was ended from inside, or a lease it relied on was lost."""

    failure_class = FailureClass.CONCURRENCY
