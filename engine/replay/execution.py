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
from ..effects.threads import contained
from ..runtime.app import JobType
from ..runtime.blocking import BlockingContext
from ..runtime.context import Context
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
    bound = asyncio.timeout(limit)
    try:
        async with bound:
            result = await _call(session, job_type, payload)
        return Finished(_encoded(result, session.setting.secrets), None, session.ended)
    except AttemptEnded as error:
        return Finished(None, None, session.ended or str(error))
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - whatever it raises is an outcome
        return _out_of_time(session, limit) if bound.expired() else _failed(session, error)


async def _call(session: ReplaySession, job_type: JobType, payload: bytes) -> Any:
    model = job_type.model.model_validate_json(payload)
    context = Context(session)
    if job_type.is_async:
        return await job_type.function(context, model)
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rewindq-replay")
    try:
        return await loop.run_in_executor(pool, contained, job_type.function, BlockingContext(context, loop), model)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _encoded(result: object, secrets: list[str]) -> bytes | None:
    try:
        return encode_result(result, secrets)
    except values.ValueRefused as error:
        raise ResultRefused(f"the result cannot be recorded: {error}") from error


def _out_of_time(session: ReplaySession, limit: float) -> Finished:
    reason = f"no result within {limit:g} s"
    if not session.setting.attempt.by_handler and session.matcher.next is None:
        return Finished(None, None, f"ends here: the handler gave {reason}, and its end was not recorded")
    return Finished(None, d.AttemptFailure(FailureClass.TIMEOUT, reason, None, None, int(limit * 1000)), None)


def _failed(session: ReplaySession, error: BaseException) -> Finished:
    blocked = isinstance(error, EffectBlocked)
    failure = failure_of(session.setting.app, error, session.setting.secrets, 0)
    return Finished(None, failure, session.ended, blocked)


def compare_end(session: ReplaySession, finished: Finished, blob: Callable[[str], bytes] | None) -> None:
    """Lists where the end differs from the recorded one; an unfinished recording has none to compare with."""
    attempt = session.setting.attempt
    if finished.ended is None:
        session.matcher.finish()
    if finished.ended is not None or attempt.end is None or not attempt.by_handler or finished.blocked:
        return
    before = recorded_end(attempt.end.body)
    if finished.failure is not None:
        now = failure_end(finished.failure)
        if before != now:
            session.matcher.found("error_differs", finished.failure.step, before, now)
    elif attempt.outcome != "succeeded":
        session.matcher.found("error_differs", attempt.failed_step, before, {"outcome": "succeeded"})
    else:
        _compare_result(session, attempt.end.body, finished.result, blob)


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
    if not isinstance(body, e.AttemptFailed):
        return {"outcome": "succeeded"}
    return _failed_end(str(body.failure_class), body.reason, body.exception)


def failure_end(failure: d.AttemptFailure) -> dict[str, Any]:
    """A failure in the same form."""
    return _failed_end(str(failure.failure_class), d.bounded(failure.reason), failure.exception)


def _failed_end(failure_class: str, reason: str, exception: str | None) -> dict[str, Any]:
    # Without its module: the same class may be loaded from another place.
    name = None if exception is None else exception.rpartition(".")[2]
    return {"outcome": "failed", "class": failure_class, "reason": reason, "exception": name}
