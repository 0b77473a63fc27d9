"""`Context` without `await`, for plain `def` handlers: they run in a thread and ask the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from ..effects.errors import AttemptEnded
from .context import Aggregate, Context
from .leasing import Lease, enter, leave

T = TypeVar("T")


class BlockingContext:
    """`Context` for plain `def` handlers, which run in a thread: the same methods, without `await`."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def _run(self, pending: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            pending.close()
            raise AttemptEnded(f"the worker that ran {self.job_id} has ended")
        return asyncio.run_coroutine_threadsafe(pending, self._loop).result()

    def _call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call())

    job_id = property(lambda self: self._context.job_id)
    attempt = property(lambda self: self._context.attempt)
    trace_id = property(lambda self: self._context.trace_id)
    mode = property(lambda self: self._context.mode)
    random = property(lambda self: self._context.random)

    def uuid(self) -> UUID:
        """See `Context.uuid`."""
        return self._context.uuid()

    def now(self) -> datetime:
        """See `Context.now`."""
        return self._call(self._context.now)

    def load(self, type: str, id: str | int) -> Aggregate:  # noqa: A002
        """See `Context.load`."""
        return self._run(self._context.load(type, id))

    def save(self, type: str, id: str | int, changes: Mapping[str, Any], *, expected: int) -> int:  # noqa: A002
        """See `Context.save`."""
        return self._run(self._context.save(type, id, changes, expected=expected))

    def effect(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `Context.effect`."""
        return self._run(self._context.effect(name, function, *args, **kwargs))

    def decide(self, name: str, value: T, **because: Any) -> T:
        """See `Context.decide`."""
        self._call(self._context.decide, name, value, **because)
        return value

    def cache(self, source: str, key: str) -> Any:
        """See `Context.cache`."""
        return self._run(self._context.cache(source, key))

    def lease(self, *resources: str, ttl: float = 30, wait: float = 10) -> AbstractContextManager[Lease]:
        """See `Context.lease`."""
        return _BlockingLease(self, self._context.lease(*resources, ttl=ttl, wait=wait))

    def note(self, name: str, **fields: Any) -> None:
        """See `Context.note`."""
        self._call(self._context.note, name, **fields)

    def enqueue(self, handler_or_type: Callable[..., Any] | str, payload: Any, **options: Any) -> str:
        """See `Context.enqueue`."""
        return self._run(self._context.enqueue(handler_or_type, payload, **options))

    def in_loop(self, pending: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the worker's loop and waits for it."""
        return self._run(pending)


class _BlockingLease:
    def __init__(self, context: BlockingContext, block: AbstractAsyncContextManager[Lease]) -> None:
        self._context = context
        self._block = block
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        self._lease = self._context.in_loop(_enter(self._block))
        enter(self._lease.handles)  # what this thread asks for from now on
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            leave(self._lease.handles)
        self._context.in_loop(_leave(self._block))


async def _enter(block: AbstractAsyncContextManager[Lease]) -> Lease:
    return await block.__aenter__()


async def _leave(block: AbstractAsyncContextManager[Lease]) -> None:
    await block.__aexit__(None, None, None)
