"""A commit that fails, is fenced, or whose outcome is unknown: no job is lost and no effect happens twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.log.memory import MemoryLog, MemoryState
from rewindq.engine.ports.log import Append, AppendRefused, LogError, OutcomeUnknown

JOBS = 6


class Item(BaseModel):
    """A small payload."""

    n: int


class FailingCommits:
    """Raises at a quarter of the commits, drawn from a seed, before or after they are made."""

    def __init__(self, error: LogError, *, after: bool) -> None:
        self._error = error
        self._after = after
        self._draw = random.Random(7)
        self.raised = 0

    def _due(self, who: str, appends: Sequence[Append]) -> bool:
        return "worker" in who and bool(appends) and self._draw.random() < 1 / 4

    def before_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Fails it without a trace."""
        if not self._after and self._due(who, appends):
            self.raised += 1
            raise self._error

    def after_commit(self, who: str, appends: Sequence[Append]) -> None:
        """Fails it although it is made."""
        if self._after and self._due(who, appends):
            self.raised += 1
            raise self._error


@pytest.mark.parametrize("markers", [False, True], ids=["plain offsets", "offset gaps"])
@pytest.mark.parametrize(
    ("error", "after"),
    [
        (AppendRefused("disk full"), False),
        (OutcomeUnknown("time-out"), False),
        (OutcomeUnknown("time-out"), True),
    ],
    ids=["refused", "unknown and not made", "unknown and made"],
)
def test_a_quarter_of_the_commits_fails(tmp_path: Path, error: LogError, after: bool, markers: bool) -> None:
    faults = FailingCommits(error, after=after)
    calls: Counter[int] = Counter()
    app = App("t")

    @app.job(resource="item:{n}", max_lost=1000)
    async def work(ctx: Context, job: Item) -> None:
        item = await ctx.load("item", job.n)
        await ctx.effect("call", calls.update, [job.n], key="k", on_doubt=lambda n: calls[n[0]] or None)
        await ctx.save("item", job.n, {"done": True}, expected=item.version)

    shop = Shop(tmp_path, app, log=MemoryLog(MemoryState(faults=faults, markers=markers)), partitions=2)
    for n in range(JOBS):
        shop.submit("work", {"n": n}, f"j{n}")
    shop.run(name="worker", concurrency=4)
    assert faults.raised > 3
    assert calls == dict.fromkeys(range(JOBS), 1)
    for n in range(JOBS):
        assert shop.job(f"j{n}").status == s.SUCCEEDED
        assert shop.aggregate(f"item:{n}").version == 1
    ends = Counter(r.job_id for r in shop.records() for ev in r.events if isinstance(ev.body, e.JobSucceeded))
    assert set(ends.values()) == {1}
