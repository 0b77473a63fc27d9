"""Attempts: starting them, running their handlers, and deciding what their end means."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.blocking import with_block
from rewindq.engine.core.compensate import end_compensation
from rewindq.engine.core.doubt import unresolved
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.core.secrets import secret_texts
from rewindq.engine.effects.errors import AttemptEnded, StepLost, ThreadBusy
from rewindq.engine.effects.threads import Threads
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.blocking import BlockingContext
from rewindq.engine.runtime.context import Context
from rewindq.engine.runtime.deployment import BodyTooLarge, Deployment
from rewindq.engine.runtime.ends import ResultRefused, encode_result, failure_of

from .alone import Alone
from .compensating import CompensatingSession, is_compensating, undo_in
from .holds import Holds
from .intake import Intake, payload_bytes
from .leases import Leases
from .limits import Limits
from .owner import About, Owner, Taken
from .queue import Ready, ReadyQueue
from .remote import Remote
from .report import WorkerOptions
from .run import Run
from .session import LiveSession
from .timers import Timers
from .waiting import Place, WaitQueues


class Attempts:
    """All running attempts of a worker. Everything here runs in the event loop."""

    def __init__(
        self, deployment: Deployment, app: App, intake: Intake, wake: Callable[[], None], options: WorkerOptions
    ) -> None:
        self.deployment = deployment
        self.app = app
        self.wake = wake
        self.queues: dict[int, ReadyQueue] = {}
        self.timers: dict[int, Timers] = {}
        self.waits = WaitQueues(self.queues)
        self.leases = Leases(deployment, self.waits, wake, options.deadlock_after)
        self.remote = Remote(deployment, self.touched, wake, self.leases.deadlocks)
        self.holds = Holds(self.queues, self.requeue)
        self.running: dict[str, Run] = {}
        self.by_type: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self.limits = Limits(deployment, app, self.queues)
        self.alone = Alone(self.running, self.waits, self.limits)
        self._intake = intake
        self._draw = random.Random()
        self._dirty: set[Run] = set()
        self._threads = Threads(options.threads, "rewindq-handler", options.thread_wait)
        self._effects = Threads(options.threads, "rewindq-effect", options.thread_wait)

    # --- input ---

    def follow(self, owner: Owner, taken: Taken) -> None:
        """Does what follows from an input that was taken in."""
        if not taken.events:
            return
        first, last = taken.events[0].body, taken.events[-1].body
        if taken.job_id is None:
            if isinstance(last, e.QuarantineAdded | e.QuarantineLifted):
                self.holds.decided(owner, last)
            return
        if isinstance(first, e.JobAccepted) and (first is last or isinstance(last, e.UniqueTaken)):
            if first.due is None:
                self.requeue(owner, taken.job_id)
            else:
                self.timers[owner.partition].add(first.due, taken.job_id)
        elif isinstance(first, e.RetryRequested):
            self.requeue(owner, taken.job_id)
        elif isinstance(last, e.CancelRequested):
            self.cancel(taken.job_id, last)
        elif isinstance(last, e.JobCancelled):
            self.limits.forget(owner, taken.job_id)

    # --- starting ---

    def start(self, owner: Owner, entry: Ready) -> Run | None:
        """Decides the next attempt of a waiting job; `spawn` its handler when that is durable.

        One that cannot be run as its type's rules want it is parked; one that has to run alone may have to wait.
        """
        job = owner.states.job(entry.job_id)
        head = owner.states.head(entry.job_id)
        assert job is not None and head is not None
        about = About.job(entry.job_id, head, job.attempt + 1, owner.partition, job.last_seq)
        job_type = self.app.types[head.type]
        if job.lost and self.alone.must_wait(owner, entry, job.lost, job_type.max_lost):
            return None
        missed = self.limits.missed(head)
        if missed is not None:
            self._park_misfit(owner, head, replace(about, attempt=job.attempt), missed)
            return None
        lease = owner.states.lease(head.resource) if head.resource is not None else None
        timeout_ms = None if job_type.timeout is None else int(job_type.timeout * 1000)
        event = d.decide_start(job, lease, head.resource, timeout_ms)
        owner.append(about, (event,))
        run = Run(owner, entry.job_id, head, job.attempt + 1, job_type, event.fencing_token, self.deployment.clock)
        run.compensating = job.compensating is not None
        self.running[entry.job_id] = run
        self.by_type[head.type] += 1
        if job_type.rate is not None:
            self.limits.rates.reserve(head.type)
        return run

    def spawn(self, run: Run) -> None:
        """Runs the handler of an attempt whose start is durable."""
        if run.job_type.rate is not None:
            self.limits.rates.spend(run.head.type, run.clock.monotonic(), starts=not run.closed)
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
            if run.head.secrets:
                run.secrets = secret_texts(raw, run.head.secrets)
            if not await self._threads.over(run.job_id):
                raise ThreadBusy(f"the thread of an earlier attempt still runs {self._threads.wait:g} s later")
            if run.compensating:
                await self._compensate(run)
                return
            payload = run.job_type.model.model_validate_json(raw)
            context = Context(session)
            if run.job_type.is_async:
                result = await run.job_type.function(context, payload)
            else:
                blocking = BlockingContext(context, asyncio.get_running_loop())
                result = await self._threads.run(run.job_id, run.job_type.function, blocking, payload)
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

    async def _compensate(self, run: Run) -> None:
        """Undoes the job's effects instead of running its handler."""
        await CompensatingSession(run, self, self._effects).run(self.app, undo_in(run.owner, run.job_id))
        if run.closed:
            return
        run.flush()
        failed = is_compensating(run.owner, run.job_id)
        assert failed is not None
        events = end_compensation(failed, undo_in(run.owner, run.job_id), None)
        self._end(run, events, s.INVESTIGATION)
        self._intake.investigate(run.owner, self._about(run), events[-1])

    # --- ends ---

    def _succeed(self, run: Run, result: object) -> None:
        try:
            data = encode_result(result, run.secrets)
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
        now = self.deployment.time.now_us()
        undo = undo_in(owner, run.job_id)
        events = d.decide_failure(job, failure, run.job_type.retry, now, self._draw.random(), undo)
        events = with_block(events, job, run.head.resource, run.job_type.blocks_key)
        last = events[-1].body
        outcome = {e.RetryScheduled: s.RETRYING, e.CompensationStarted: s.WAITING}.get(type(last), s.INVESTIGATION)
        self._end(run, (*doubts, *events), outcome)
        if isinstance(last, e.RetryScheduled):
            self.timers[owner.partition].add(last.due, run.job_id)
        elif isinstance(last, e.CompensationStarted):
            self.requeue(owner, run.job_id)
        else:
            self._intake.investigate(owner, self._about(run), events[-1])

    def _timed_out(self, run: Run) -> None:
        if run.closed:
            return
        reason = f"no result within {run.job_type.timeout:g} s"
        failure = d.AttemptFailure(FailureClass.TIMEOUT, reason, None, None, run.duration)
        self._abort(run)
        self._after_thread(run, lambda over: self._time_out(run, failure, over))

    def _time_out(self, run: Run, failure: d.AttemptFailure, over: bool) -> None:
        if run.cancelled is not None:
            self._cancel(run, run.cancelled, over)
            return
        if not over:
            failure = failure._replace(reason=f"{failure.reason}; {self._still_runs()}", terminal=True)
        self._failed(run, failure, self._doubts(run, "the attempt timed out in the middle of the call"))

    def _after_thread(self, run: Run, end: Callable[[bool], None]) -> None:
        """Ends a stopped attempt when its thread, if it has one, is over or was waited for long enough.

        Till then the job is running and holds what it holds, so that no other attempt overlaps with the thread.
        """

        def once(over: bool) -> None:
            if run.overdue is once:
                run.overdue = None
                run.flush()  # what became of its calls meanwhile
                end(over)

        run.overdue = once
        self._threads.when_over(run.job_id, once)

    def _still_runs(self) -> str:
        return f"its thread still runs {self._threads.wait:g} s later: see to it, or restart the worker, before a retry"

    def cancel(self, job_id: str, body: e.CancelRequested) -> None:
        """Ends a running attempt for an operator. A call under way leaves its effect in doubt, for a person."""
        run = self.running.get(job_id)
        if run is None:
            return
        if run.overdue is not None:
            run.cancelled = body
        elif not run.closed:
            self._abort(run)
            self._after_thread(run, lambda over: self._cancel(run, body, over))

    def _cancel(self, run: Run, body: e.CancelRequested, over: bool) -> None:
        doubts = self._doubts(run, "the job was cancelled in the middle of the call")
        if not doubts and over:
            cancelled = e.Event(e.JobCancelled(body.reason, body.actor, body.command_id), status="fail")
            self._end(run, (cancelled,), s.CANCELLED)
            return
        if doubts:
            doubt = doubts[0].body
            assert isinstance(doubt, e.EffectInDoubt)
            told = unresolved(doubts[0].step or "", doubt.key, "its call was under way", "cancel the job again")
            reason = d.bounded(f"cancelled ({body.reason}): {told}")
            events = d.investigation(FailureClass.IN_DOUBT, reason, doubts[0].step)
        else:
            events = d.investigation(FailureClass.TIMEOUT, f"cancelled ({body.reason}); {self._still_runs()}", None)
        job = run.owner.states.job(run.job_id)
        assert job is not None
        events = with_block(events, job, run.head.resource, run.job_type.blocks_key)
        self._end(run, (*doubts, *events), s.INVESTIGATION)
        self._intake.investigate(run.owner, self._about(run), events[-1])

    def hand_back(self, run: Run, reason: str) -> None:
        """Gives a job back without using up an attempt (orderly shutdown, hand-over).

        One whose time was over and whose thread still runs is for a person: nobody can wait for it any longer.
        """
        if run.overdue is not None:
            run.overdue(False)
        if run.closed:
            return
        self._abort(run)
        doubts = self._doubts(run, f"{reason} in the middle of the call")
        self._end(run, (*doubts, e.Event(e.AttemptHandedBack(reason))), s.WAITING)
        self.requeue(run.owner, run.job_id)

    def abandon(self, run: Run) -> None:
        """Stops an attempt whose partition has passed on: nothing is decided any more."""
        run.close()
        run.overdue = None
        self.remote.abandon(run)
        if run.task is not None:
            run.task.cancel()
        self.running.pop(run.job_id, None)
        self.by_type[run.head.type] -= 1
        self._dirty.discard(run)

    def _abort(self, run: Run) -> None:
        run.flush()
        run.close()
        if run.task is not None:
            run.task.cancel()

    def _doubts(self, run: Run, reason: str) -> tuple[e.Event, ...]:
        return d.doubts(run.owner.states.open_effects(run.job_id), reason)

    def _end(self, run: Run, events: tuple[e.Event, ...], outcome: str) -> None:
        run.flush()
        self.leases.end_run(run)
        self.remote.end_run(run, events)
        run.close()
        run.flush(events)
        self._dirty.discard(run)
        self.running.pop(run.job_id, None)
        self.by_type[run.head.type] -= 1
        self._ended[outcome] += 1
        if run.job_type.blocks_key:
            self.limits.see_block(run.owner, run.head.resource)
        self._free(run.owner, run.head.resource)
        self.limits.leave(run.owner.partition, run.head)
        self.wake()

    def _free(self, owner: Owner, resource: str | None) -> None:
        if resource is not None:
            self.limits.see_unblocked(owner, resource)
            self.waits.freed(Place(owner.partition, resource))

    def _about(self, run: Run) -> About:
        return About.job(run.job_id, run.head, run.attempt, run.owner.partition, run.owner.seq - 1)

    def _park_misfit(self, owner: Owner, head: s.JobHead, about: About, missed: str) -> None:
        self.limits.leave(owner.partition, head)
        self._free(owner, head.resource)
        reason = f"it was accepted without {missed}, by a worker that did not know it; submit it under a new id"
        self.park(owner, about, FailureClass.VALIDATION, reason)

    def park(self, owner: Owner, about: About, kind: FailureClass, reason: str) -> None:
        """Puts a job that does not run under investigation."""
        events = d.investigation(kind, reason, None)
        owner.append(about, events)
        self._intake.investigate(owner, about, events[-1])

    # --- bookkeeping ---

    def requeue(self, owner: Owner, job_id: str) -> None:
        """Puts a job that waits (again) into the ready queue, unless a quarantine holds it."""
        head = owner.states.head(job_id)
        assert head is not None
        if head.type not in owner.states.quarantined and not self.alone.waits(job_id):
            self.queues[owner.partition].push(self.limits.entry(job_id, head))

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
        self._threads.shutdown()
        self._effects.shutdown()
