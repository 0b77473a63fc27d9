"""Whatever a dead worker's job held, its resource and its unique key, needs no hand to be free again.

Pinned down: a unique key belongs to its job, not to a worker, and is freed in the fold of the job's end
(`engine/core/fold.py: _let_go`); a resource is held by an attempt of the owner that lives
(`processors/worker/revive.py`). Single ends, and a retry that meets a younger job with its key, are in
`tests/worker/test_unique.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.support.clock import Movable
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.log.opener import open_log
from rewindq.engine.ports.store import Family
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify
from rewindq.processors.worker import owner

KEY = "thing:1"
#: What stands in the log, and not yet in the store, when the worker of job `u` dies.
DEATHS: list[type[e.Body]] = [e.UniqueTaken, e.AttemptStarted, e.JobSucceeded]


class Item(BaseModel):
    """A small payload."""

    note: str = ""


class Gone(Exception):
    """Stands for a process that is gone without an orderly end."""


def test_key_and_resource_go_on_through_every_death(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ran = App("t"), []

    @app.job(unique=KEY, resource=KEY)
    async def once(ctx: Context, job: Item) -> None:
        await ctx.effect("call", lambda: ran.append(ctx.job_id), key=ctx.job_id)

    @app.job(resource=KEY)
    async def other(ctx: Context, job: Item) -> None:
        ran.append(ctx.job_id)

    log, left = open_log(settings.log), list(DEATHS)
    store = owner.ClosedTurn.store

    def dying_store(turn: owner.ClosedTurn, offsets: Sequence[int]) -> None:
        records = [shop.deployment.codec.decode(append.value) for append in turn.appends]
        if left and any(
            type(one.body) is left[0] for record in records if record.job_id == "u" for one in record.events
        ):
            left.pop(0)
            raise Gone
        store(turn, offsets)

    monkeypatch.setattr(owner.ClosedTurn, "store", dying_store)
    shop = Shop(tmp_path, app, log=log, partitions=1, namespace=settings.namespace)
    clock = shop.deployment.clock = Movable()
    shop.submit("once", {}, "u", key=KEY, due=clock.now_us() + 3_600_000_000)
    _die(shop)
    for n in range(3):
        shop.submit("once", {"note": str(n)}, f"again{n}", key=KEY)
    shop.run(lambda report: shop.names("again2") != [])
    clock.added = 3601
    for n in range(3):
        shop.submit("other", {}, f"o{n}", key=KEY)
    _die(shop)
    _die(shop)
    shop.run()

    assert left == []
    assert ran.count("u") == 1 and sorted(set(ran)) == ["o0", "o1", "o2", "u"]
    assert (shop.job("u").status, shop.job("u").attempt, shop.job("u").lost) == (s.SUCCEEDED, 2, 1)
    firsts = [body.first for body in shop.bodies() if isinstance(body, e.UniqueDuplicated)]
    assert firsts == ["u"] * 3
    assert [shop.job(f"o{n}").status for n in range(3)] == [s.SUCCEEDED] * 3
    assert not list(shop.fold()[0]._store.scan(Family.MARKS, s.UNIQUE.encode()))
    shop.submit("once", {}, "v", key=KEY)
    shop.run()
    assert shop.job("v").status == s.SUCCEEDED
    assert verify(shop.deployment)["violations"] == []
    log.close()


def _die(shop: Shop) -> None:
    with pytest.raises(Gone):
        shop.run(lambda report: False)
