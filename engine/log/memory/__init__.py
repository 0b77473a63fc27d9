"""The log in memory, for simulation and tests: it promises what the others do, except to outlive its process.

It has no threads, and reads no clock unless given one, so a simulation that calls it in a fixed order sees
the same things every time. Any number of `MemoryLog` handles may share one `MemoryState`.
"""

from .log import MemoryLog, open_memory
from .state import Faults, MemoryState, NoFaults

__all__ = ["Faults", "MemoryLog", "MemoryState", "NoFaults", "open_memory"]
