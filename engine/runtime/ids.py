"""Ids that a process makes up: unique without asking anybody, and in the order of their time."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..ports.clock import Clock

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BYTES = 10


def new_id(clock: Clock, entropy: Callable[[int], bytes] = os.urandom) -> str:
    """26 characters: the wall clock's millisecond, then 80 random bits. Ids sort as the times they were made at."""
    number = clock.now_us() // 1000 << 80 | int.from_bytes(entropy(_RANDOM_BYTES), "big")
    return "".join(_DIGITS[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))
