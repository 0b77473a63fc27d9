"""Runs a handler on a replay session, as the worker does live, and says what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..core import decide as d
from ..core import events as e
from ..core import values
from ..core.retry import FailureClass
from ..effects.errors import AttemptEnded, EffectBlocked
from ..runtime.app import JobType
from ..runtime.context import BlockingContext, Context
from ..runtime.ends import ResultRefused, encode_result, failure_of
from .session import ReplaySession
from .world import shown

#: Threads of a plain `def` handler's replay.
_THREADS = 4


class Finished(NamedTuple):
    """How a handler's replay ended: with a result, with a failure, or at the recording's end."""

    result: bytes | None
    failure: d.AttemptFailure | None
    ended: str | None
    blocked: bool = False


async def execute(session: ReplaySession, job_type: JobType, payload: bytes, limit: float) -> Finished:
    """Runs the handler once. `limit` seconds bound it."""
    session.handler_task = asyncio.current_task() if job_type.is_async else None
    try:
        async with asyncio.timeout(limit):
            result = await _call(session, job_type, payload)
        return Finished(_encoded(result), None, session.ended)
    except AttemptEnded as error:
        return Finished(None, None, session.ended or str(error))
    except TimeoutError as error:
        return _timed_out(session, error, limit)
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - whatever a handler raises is an outcome
        return _failed(session, error)


async def _call(session: ReplaySession, job_type: JobType, payload: bytes) -> Any:
    model = job_type.model.model_validate_json(payload)
    context = Context(session)
    if job_type.is_async:
        return await job_type.function(context, model)
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rewindq-replay")
    try:
        return await loop.run_in_executor(pool, job_type.function, BlockingContext(context, loop), model)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _encoded(result: object) -> bytes | None:
    try:
        return encode_result(result)
    except values.ValueRefused as error:
        raise ResultRefused(f"the result cannot be recorded: {error}") from error


def _timed_out(session: ReplaySession, error: TimeoutError, limit: float) -> Finished:
    """A time-out of the handler's own is its failure; the replay's bound is an end from outside."""
    if error.__cause__ is None and not isinstance(error.__context__, asyncio.CancelledError):
        return _failed(session, error)
    if not session.setting.attempt.by_handler and session.matcher.next is None:
        return Finished(None, None, f"ends here: the handler was not done within {limit:g} s, nor was it then")
    failure = d.AttemptFailure(FailureClass.TIMEOUT, f"no result within {limit:g} s", None, None, int(limit * 1000))
    return Finished(None, failure, None)


def _failed(session: ReplaySession, error: BaseException) -> Finished:
    blocked = isinstance(error, EffectBlocked)
    failure = failure_of(session.setting.app, error, session.setting.secrets, 0)
    return Finished(None, failure, session.ended, blocked)


def compare_end(session: ReplaySession, finished: Finished, blob: Callable[[str], bytes] | None) -> None:
    """Lists where the end differs from the recorded one; an unfinished recording has none to compare with."""
    attempt = session.setting.attempt
    session.matcher.unordered or _finish_steps(session, finished)
    if finished.ended is not None or attempt.end is None or not attempt.by_handler or finished.blocked:
        return
    before = recorded_end(attempt.end.body)
    if finished.failure is not None:
        now = {"outcome": "failed", **failure_shown(finished.failure)}
        if before != now:
            session.matcher.found("error_differs", finished.failure.step, before, now)
        return
    if attempt.outcome != "succeeded":
        session.matcher.found("error_differs", attempt.failed_step, before, {"outcome": "succeeded"})
        return
    _compare_result(session, attempt.end.body, finished.result, blob)


def _finish_steps(session: ReplaySession, finished: Finished) -> None:
    if finished.ended is None or session.setting.attempt.by_handler:
        session.matcher.finish()


def _compare_result(
    session: ReplaySession, body: e.JobSucceeded, result: bytes | None, blob: Callable[[str], bytes] | None
) -> None:
    recorded = body.result
    if body.result_ref is not None and blob is not None:
        recorded = blob(body.result_ref)
    if recorded != result:
        session.matcher.found("result_differs", None, shown(recorded), shown(result))


def recorded_end(body: e.Body) -> dict[str, Any]:
    """A recorded end, to be held against a replay's."""
    if isinstance(body, e.AttemptFailed):
        return {
            "outcome": "failed",
            "class": str(body.failure_class),
            "reason": body.reason,
            "exception": body.exception,
        }
    return {"outcome": "succeeded"}


def failure_shown(failure: d.AttemptFailure) -> dict[str, Any]:
    """A failure's class, reason and exception."""
    return {
        "class": str(failure.failure_class),
        "reason": d.bounded(failure.reason),
        "exception": failure.exception,
    }
