"""Commits turns: log first, store after, then whoever waited is woken. One turn is under way at a time.

The numbered order is the protocol; crash tests stop at each of its points.

1. The turn is closed: its events are decided and folded in memory, nothing of it is visible outside.
2. Events and input offsets commit to the log in one transaction.
3. The store gets the turn in one write batch together with the positions.
4. Waiters are woken: effects are called, handlers start, results are visible.

A crash between 2 and 3 leaves the store behind the log: the next owner folds the tail. Nothing is lost or done twice,
because nothing acts outside before 4.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from rewindq.engine.ports.log import Append, Member, TopicPartition, Turn

from .owner import ClosedTurn, Owner


class Committer:
    """Runs commits in a thread of its own, so that handlers go on meanwhile."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rewindq-commit")

    async def commit(self, owners: list[Owner]) -> int:
        """Commits the open turns of these owners as one; returns the number of records.

        Raises what `Member.commit` raises; then none of the turns is stored and their owners must be given up.
        """
        turns = [owner.close_turn() for owner in owners]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._commit, turns)
        for turn in turns:
            turn.owner.committed(turn)
        return sum(len(turn.appends) for turn in turns)

    def _commit(self, turns: list[ClosedTurn]) -> None:
        appends: list[Append] = []
        offsets: dict[TopicPartition, int] = {}
        for turn in turns:
            appends.extend(turn.appends)
            for topic, offset in turn.owner.inputs_of(turn).items():
                offsets[(topic, turn.owner.partition)] = offset
        written = self.commit_now(Turn(appends, offsets, frozenset(t.owner.partition for t in turns)))
        start = 0
        for turn in turns:
            end = start + len(turn.appends)
            turn.store(written[start:end])
            start = end

    def commit_now(self, turn: Turn) -> list[int]:
        """Commits a turn from the calling thread (a takeover's fences); one commit at a time goes to the member."""
        with self._lock:
            return self._member.commit(turn)

    def close(self) -> None:
        """Waits for the commit under way."""
        self._thread.shutdown(wait=True)
