"""Threads for plain functions, each under a name, so that nobody starts one again while it still runs.

A thread cannot be ended from outside: a function that ran out of its time goes on. Who is to call it again asks here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

#: Seconds that a new call waits for an old one's thread before the job goes to a person.
THREAD_WAIT = 30.0


class Threads:
    """A bounded pool. `wait` seconds bound how long `over` and `when_over` look on. Used from one event loop."""

    def __init__(self, count: int, prefix: str, wait: float = THREAD_WAIT) -> None:
        self.wait = wait
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=prefix)
        self._running: dict[str, Future[Any]] = {}

    async def run(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """The function's result. When this is cancelled, a thread that has begun runs on under its name."""
        future = self._running[name] = self._pool.submit(contained, function, *args)
        future.add_done_callback(lambda done: self._forget(name, done))
        return await asyncio.wrap_future(future)

    def runs(self, name: str) -> bool:
        """Whether a thread of this name has not ended."""
        return name in self._running

    async def over(self, name: str) -> bool:
        """Waits for the thread of this name. Whether it has ended."""
        if not self.runs(name):
            return True
        ended = asyncio.get_running_loop().create_future()
        self.when_over(name, ended.set_result)
        return bool(await ended)

    def when_over(self, name: str, then: Callable[[bool], None]) -> None:
        """Calls `then(True)` in the loop when the thread of this name has ended, `then(False)` when the wait has."""
        future = self._running.get(name)
        if future is None:
            then(True)
            return
        loop = asyncio.get_running_loop()
        pending = [then]

        def tell(over: bool) -> None:
            late.cancel()
            if pending:
                pending.pop()(over)

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, True)

        late = loop.call_later(self.wait, tell, False)
        future.add_done_callback(ended)

    def shutdown(self) -> None:
        """Takes no more; what hangs is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, name: str, future: Future[Any]) -> None:
        if self._running.get(name) is future:
            del self._running[name]


def contained(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function for a future, which cannot carry a StopIteration: as in a coroutine, that is a RuntimeError."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration") from error
