"""No write stands without the version that it was made on: a loader that dropped it overwrites nobody.

The guards: `Context.save` (`runtime/context.py`) has no default for `expected` and takes nothing but a version;
`decide_save` (`core/writes.py`) refuses any version but the current one. Over partitions and deaths of workers:
`tests/process/test_other_partitions.py`; versions on branches: `tests/replay/`.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.case_shops import MakeShop, make_shop
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.retry import Backoff

__all__ = ["make_shop"]
FIELDS = [f"field-{n}" for n in range(10)]
JOBS, EACH = 4, 3
#: Many tries, soon: what is tested is that none is lost, not how long it takes.
OFTEN = Retry(
    max_attempts=1, per_class={FailureClass.CONCURRENCY: Backoff(max_attempts=500, base=0.005, factor=1.2, cap=0.1)}
)


class Item(BaseModel):
    """Which writer, and how it writes."""

    n: int = 0
    how: str = ""


def test_no_update_of_many_writers_is_lost_and_deltas_hold_what_was_given(make_shop: MakeShop) -> None:
    """Writers of different fields, of the same one, and of whole records, on a resource at home on one partition."""
    app = App("t")

    @app.job(retry=OFTEN)
    async def add(ctx: Context, job: Item) -> None:
        thing = await ctx.load("thing", "1")
        done = set(thing.get("done", []))
        if (key := f"{job.n}") in done:
            return
        field = FIELDS[job.n % len(FIELDS)] if job.how == "own" else FIELDS[0]
        changes: dict[str, Any] = dict(thing.data) if job.how == "whole" else {}
        changes |= {field: thing.get(field, 0) + 1, "done": sorted({*done, key})}
        await ctx.save("thing", "1", changes, expected=thing.version)

    shop = make_shop(app, partitions=2)
    hows = ["own", "same", "whole"]
    order = [(n, how) for n in range(JOBS) for how in hows[:EACH]]
    random.Random(3).shuffle(order)
    for number, (_, how) in enumerate(order):
        shop.submit("add", {"n": number, "how": how}, f"j{number}")
    shop.run()
    thing = shop.aggregate("thing:1")
    assert sum(thing.data[field] for field in FIELDS if field in thing.data) == JOBS * EACH == thing.version
    assert {shop.job(f"j{number}").status for number in range(len(order))} == {s.SUCCEEDED}
    versions = [
        (event.body.parent, event.resource_version, set(values.decode(event.body.changes)), record.job_id)
        for record in shop.records()
        for event in record.events
        if isinstance(event.body, e.StateChanged)
    ]
    assert [(parent, version) for parent, version, *_ in sorted(versions, key=lambda one: one[0])] == [
        (n, n + 1) for n in range(JOBS * EACH)
    ]
    hows_of = {f"j{number}": how for number, (_, how) in enumerate(order)}
    assert all(len(fields) == 2 for *_, fields, job_id in versions if hows_of[job_id or ""] != "whole")
    kinds = Counter(body.failure_class for body in shop.bodies() if isinstance(body, e.AttemptFailed))
    assert set(kinds) <= {FailureClass.CONCURRENCY}


@pytest.mark.parametrize("version", ["omitted", None, True, "5", 5.0, -1, 999, 4, 6, 0])
def test_a_write_without_the_current_version_is_refused_and_changes_nothing(tmp_path: Path, version: Any) -> None:
    app = App("t")

    @app.job(retry=Retry(max_attempts=1, per_class={FailureClass.CONCURRENCY: Backoff(max_attempts=1)}))
    async def write(ctx: Context, job: Item) -> None:
        if job.how == "good":
            await ctx.save("thing", "1", {FIELDS[job.n]: job.n}, expected=job.n)
            return
        given = {} if version == "omitted" else {"expected": version}
        await ctx.save("thing", "1", dict.fromkeys(FIELDS, "mine"), **given)

    shop = Shop(tmp_path, app)
    for number in range(5):
        shop.submit("write", {"n": number, "how": "good"}, f"good-{number}", priority=10 - number)
    shop.run(concurrency=1)
    before = shop.aggregate("thing:1")
    assert before.version == 5
    shop.submit("write", {"how": "bad"}, "bad")
    shop.run()
    job = shop.job("bad")
    assert (job.status, job.attempt) == (s.INVESTIGATION, 1)
    assert job.failure is not None and "expected" in job.failure.reason
    if isinstance(version, int) and version is not True and version >= 0:
        conflicts = [body for body in shop.bodies("bad") if isinstance(body, e.WriteConflict)]
        assert [(one.expected, one.current) for one in conflicts] == [(version, 5)]
        assert job.failure.failure_class == FailureClass.CONCURRENCY
    elif version != "omitted":
        assert job.failure.failure_class != FailureClass.CONCURRENCY
    assert shop.aggregate("thing:1") == before
