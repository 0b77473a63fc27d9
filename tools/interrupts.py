"""Ctrl-C while a C library runs: it may lose Python's KeyboardInterrupt, or raise an error of its own in its place.

The Kafka client does both, where the interrupt meets one of its callbacks or constructors. So it is also noted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields what tells whether an interrupt has come meanwhile; it is raised as well, as before.

    Tells of none outside of the main thread, and where the program was started to ignore interrupts.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    handler, came = before, False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
