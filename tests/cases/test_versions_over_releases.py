"""Each version of a resource reads as it was recorded, whatever code came since, from snapshots and without any.

The guards: `evolve_aggregate` and `rebuild` (`core/aggregate.py`: every 16th version is a snapshot of the fold's own
result, never of a handler's), `check_positions` (`runtime/recover.py`: a store that another release folded is rebuilt).
Damaged stores: `tests/contract/store/test_damage.py`; stores of older and newer formats: `test_state_folder.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.support.shop import Shop

from rewindq import DELETE, App, Context
from rewindq.engine.core.aggregate import SNAPSHOT_EVERY
from rewindq.engine.runtime.past import Past

EACH = 2 * SNAPSHOT_EVERY + 3


class First(BaseModel):
    """The payload and the fields of the first release."""

    n: int


class Second(BaseModel):
    """A later release: one field renamed, one added with a default, one gone."""

    n: int
    currency: str = "EUR"


def _releases(recorded: list[dict[str, Any]]) -> tuple[App, App]:
    first, second = App("t"), App("t")

    @first.job("change", resource="thing:1")
    async def change(ctx: Context, job: First) -> None:
        thing = await ctx.load("thing", "1")
        changes = {"total": thing.get("total", 0) + job.n, "old": f"o{job.n}", f"seen-{job.n % 5}": job.n}
        await ctx.save("thing", "1", changes, expected=thing.version)
        recorded.append({**thing.data, **changes})

    @second.job("change", resource="thing:1")
    async def change_more(ctx: Context, job: Second) -> None:
        thing = await ctx.load("thing", "1")
        sum_ = thing.get("sum", thing.get("total", 0)) + job.n
        changes = {"sum": sum_, "currency": job.currency, "total": DELETE, "old": DELETE}
        await ctx.save("thing", "1", changes, expected=thing.version)
        left = {name: value for name, value in thing.data.items() if name not in ("total", "old")}
        recorded.append({**left, "sum": sum_, "currency": job.currency})

    return first, second


def _history(shop: Shop) -> tuple[list[dict[str, Any]], int]:
    """Every version as a reader gets it, and how many snapshots there are."""
    with Past(shop.deployment) as past:
        stored = list(past.versions("thing:1"))
        read = [past.aggregate("thing:1", seq) for seq, _ in stored]
    assert [one.version for one in read] == [one.version for _, one in stored] == list(range(1, len(read) + 1))
    return [dict(one.data) for one in read], sum(one.snapshot is not None for _, one in stored)


def test_every_version_reads_as_recorded_after_other_code_and_after_the_code_before(tmp_path: Path) -> None:
    recorded: list[dict[str, Any]] = []
    first, second = _releases(recorded)
    number = 0
    for app in (first, second, first):  # and back again
        shop = Shop(tmp_path, app)
        for _ in range(EACH):
            shop.submit("change", {"n": number}, f"j{number}", key="thing:1")
            number += 1
        shop.run()
        versions, snapshots = _history(shop)
        assert versions == recorded and len(recorded) == number
        assert snapshots == (number - 1) // SNAPSHOT_EVERY
        shop.deployment.close()

    shutil.rmtree(tmp_path / "state")  # without any store the log alone tells
    shop = Shop(tmp_path, second)
    versions, _ = _history(shop)
    assert versions == recorded
    assert shop.aggregate("thing:1").data == recorded[-1]
    shop.run()
    assert _history(shop) == (recorded, (number - 1) // SNAPSHOT_EVERY)
    shop.deployment.close()
