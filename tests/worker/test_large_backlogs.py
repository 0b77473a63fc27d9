"""A long queue of large payloads stays on the log: a worker holds a bounded part of it, whatever its commits take."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.ports.log import Record
from rewindq.processors.worker import inbox as inbox_module
from rewindq.processors.worker import worker as worker_module
from rewindq.processors.worker.committer import Committer
from rewindq.processors.worker.inbox import Inbox
from rewindq.processors.worker.owner import Owner

SIZE = 2000
COUNT = 300


class Large(BaseModel):
    """A payload of `SIZE` bytes."""

    text: str


async def _nothing(partitions: list[int], lost: bool) -> None: ...


def test_a_turn_takes_in_no_more_than_its_room_while_another_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("large")

    @app.job()
    async def keep(ctx: Context, job: Large) -> None: ...

    room = 20 * SIZE
    monkeypatch.setattr(worker_module, "TURN_BYTES", room)
    commit, held = Committer.commit, []

    async def slow(self: Committer, owners: list[Owner]) -> int:
        done = await commit(self, owners)
        for _ in range(100):  # the loop's passes go on beside a commit
            await asyncio.sleep(0)
        held.append(sum(owner.open_bytes for owner in owners))
        return done

    monkeypatch.setattr(Committer, "commit", slow)
    shop = Shop(tmp_path, app)
    for n in range(COUNT):
        shop.submit("keep", {"text": "x" * SIZE}, f"j{n}")
    report = shop.run()

    assert report.succeeded == COUNT
    assert max(held) >= room, "the room is used"
    assert max(held) < 2 * room, "what its attempts tell comes on top"


class Endless:
    """A member whose log never ends: ten records a poll. Asked for one, it has none."""

    def __init__(self) -> None:
        self.polls = 0
        self.full = threading.Event()

    def poll(self, timeout: float, limit: int = 1000) -> list[Record]:
        if limit == 1:
            self.full.set()
            return []
        self.full.clear()
        self.polls += 1
        return [Record("jobs", 0, 10 * self.polls + n, 0, None, b"x" * SIZE) for n in range(10)]


def test_polling_waits_where_large_records_wait_to_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "BUFFER_BYTES", 25 * SIZE)
    loop: Any = asyncio.new_event_loop()
    member: Any = Endless()
    inbox = Inbox(loop, lambda: None, _nothing)
    inbox.start(member)
    try:
        assert member.full.wait(30)
        assert member.polls == 3
        assert len(inbox.take(1000, 4 * SIZE - 1)) == 4, "the one that fills the room comes along"
        assert inbox.take(1000, 0) == inbox.take(0, SIZE) == []
        member.full.clear()
        assert member.full.wait(30)
        assert member.polls == 3, "26 are held yet"
        member.full.clear()
        offsets = [record.offset for record in inbox.take(1000, 2 * SIZE)]
        assert offsets == [14, 15]
        assert member.full.wait(30)
        assert member.polls == 4, "as soon as there is room again"
    finally:
        inbox.stop()
        inbox.join()
        loop.close()
    inbox.lost([0])
    assert inbox.take(1000, SIZE) == []
    assert inbox._bytes == 0, "what passed on has left its room"
