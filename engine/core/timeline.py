"""The time that schedules go by: the wall clock, smoothed so that setting it neither stalls nor doubles anything. Pure.

- The wall is behind (it was set back): the timeline goes on at 5/6 of the speed until the wall has caught up, so a job
  of every 5 seconds runs every 6, and no instant comes twice.
- The wall is ahead by up to a minute: the timeline goes at 7/6 of the speed until it has caught up.
- The wall is further ahead: the timeline follows at once, and the instants between are missed ones.
- The wall is set back over what such a jump has skipped: the jump was a mistake, and the timeline is the wall again.
"""

from __future__ import annotations

from typing import NamedTuple

#: Wall clock and elapsed time that differ by more than this between two looks are a jump. Microseconds.
JUMP_MIN = 1_000_000
#: The wall may be ahead by so much before the timeline jumps after it.
SMOOTHED_MAX = 60_000_000


class Timeline(NamedTuple):
    """A look at the clocks, in microseconds: wall, elapsed and the schedules' time.

    `gap` is what the newest long jump forward skipped: no instant in it was planned.
    """

    wall: int
    elapsed: int
    now: int
    gap: tuple[int, int] = (0, 0)


class Jump(NamedTuple):
    """The wall clock was set: by how much, and from where instants count again when a jump was taken back."""

    by: int
    restart: int | None


def begin(wall: int, elapsed: int, floor: int) -> Timeline:
    """The first look. `floor` is the newest instant that was planned: the clock may have been ahead then."""
    return Timeline(wall, elapsed, max(wall, floor))


def look(before: Timeline, wall: int, elapsed: int) -> tuple[Timeline, Jump | None]:
    """The next look, and whether the wall clock was set since the last one."""
    passed = elapsed - before.elapsed
    by = wall - before.wall - passed
    jumped = abs(by) > JUMP_MIN
    begin_, end = before.gap
    if jumped and by < 0 and begin_ - SMOOTHED_MAX <= wall < end:
        return Timeline(wall, elapsed, wall), Jump(by, wall)
    reached = before.now + passed
    gap = (reached, wall) if wall > reached + SMOOTHED_MAX else before.gap
    return Timeline(wall, elapsed, _advance(before.now, wall, passed), gap), Jump(by, None) if jumped else None


def _advance(now: int, wall: int, passed: int) -> int:
    if wall > now + passed + SMOOTHED_MAX:
        return wall
    return max(now + passed * 5 // 6, min(wall, now + passed * 7 // 6))
