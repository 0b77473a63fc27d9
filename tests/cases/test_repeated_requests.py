"""An intent has one key on every attempt, and a command that is repeated under one request id has one result.

The guards: `effect_key` (`core/decide.py`) makes keys of the intent alone; `command_id_of`, `answered` and `send`
(`runtime/commands.py`) with the fold's answers (`core/answered.py`, `store/commands.py`), asked by `Operators._of_job`
(`worker/operators.py`) and `resolve` (`worker/resolving.py`); `decide_quarantine`; `requested.find` and `_refuse_known`
(`engine/replay/`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support import replay_shop
from tests.support.case_shops import MakeShop, make_shop
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass, Retry
from rewindq.engine.core import state as s
from rewindq.engine.replay import branches
from rewindq.engine.replay.forks import ForkOptions, fork
from rewindq.engine.replay.parent import Refused
from rewindq.engine.replay.points import Wanted
from rewindq.engine.runtime.client import Client, CommandRefusedError, Resolution
from rewindq.engine.runtime.deployment import Deployment

__all__ = ["make_shop"]
AT_ONCE = 5


class Order(BaseModel):
    """A small payload."""

    n: int = 0


def _at_once(shop: Shop, give: Callable[[Client], Any]) -> list[Any]:
    """The same command from several clients behind a barrier: their results."""
    begun = threading.Barrier(AT_ONCE)

    def one(_: int) -> Any:
        with Deployment.open(shop.deployment.settings) as deployment, Client(deployment=deployment) as client:
            begun.wait(30)
            return give(client)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(AT_ONCE)))


def _while_working(shop: Shop, give: Callable[[Client], Any]) -> list[Any]:
    """The same beside a worker that is there to answer."""
    found: list[Any] = []

    async def beside(worker: Any) -> None:
        while worker.report.owned < shop.deployment.partitions:
            await asyncio.sleep(0.01)
        try:
            found.extend(await asyncio.to_thread(_at_once, shop, give))
        finally:
            worker.stop()

    shop.run(until=lambda report: False, during=beside)
    return found


def test_one_key_over_all_attempts_and_for_whoever_asks_next(tmp_path: Path) -> None:
    """The gateway does it and drops its answers; attempts end; an operator sends the job back; a second job asks."""
    app, keys = App("t"), []

    def charge(n: int, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) <= 3:
            raise ConnectionError("dropped")
        return "receipt"

    @app.job(key="order:{n}", retry=Retry(max_attempts=2, base=0.01))
    async def pay(ctx: Context, job: Order) -> str:
        return str(await ctx.effect("charge", charge, job.n, key=f"charge-{job.n}", idempotent=True))

    shop = Shop(tmp_path, app)
    shop.submit("pay", {"n": 1}, "first")
    shop.run()
    assert shop.job("first").status == s.INVESTIGATION
    with Client(deployment=shop.deployment) as client:
        client.retry("first", "gateway is back")
    shop.run()
    shop.submit("pay", {"n": 1}, "again")
    shop.run()
    assert (shop.job("first").attempt, shop.job("again").attempt) == (4, 1)
    assert Counter(keys) == {"order:1/charge/charge-1": 4}
    assert shop.job("again").status == s.SUCCEEDED


def _failing() -> tuple[App, list[int]]:
    app, ran = App("t"), []
    app.classify(KeyError, FailureClass.VALIDATION)

    @app.job()
    async def fail(ctx: Context, job: Order) -> None:
        ran.append(job.n)
        raise KeyError("no")

    @app.job()
    async def doubt(ctx: Context, job: Order) -> str:
        def call() -> None:
            raise TimeoutError("silent")

        return str(await ctx.effect("call", call, key="k"))

    return app, ran


def test_a_retry_under_one_request_id_is_one_attempt(make_shop: MakeShop) -> None:
    app, ran = _failing()
    shop = make_shop(app, partitions=2)
    shop.submit("fail", {}, "j")
    shop.run()

    def give(client: Client, request: str = "r1", timeout: float = 10) -> Any:
        return client.retry("j", "again", timeout=timeout, request_id=request)

    # Nobody is there to answer: all stand on the topic, and one counts.
    queued = _at_once(shop, lambda client: give(client, timeout=0))
    assert len({one.command_id for one in queued}) == 1 and {one.state for one in queued} == {"queued"}
    shop.run()
    assert (shop.job("j").attempt, len(ran)) == (2, 2)
    told = _while_working(shop, give)
    assert set(told) == {queued[0]._replace(state="done")}
    assert (shop.job("j").attempt, len(ran)) == (2, 2)
    others = _while_working(shop, lambda client: give(client, "r2"))
    shop.run()
    assert {one.state for one in others} == {"done"} and len({one.command_id for one in [*others, *told]}) == 2
    assert (shop.job("j").attempt, len(ran)) == (3, 3)
    counts = Counter(shop.names("j"))
    assert (counts["RetryRequested"], counts["CommandRefused"]) == (2, 0)


def test_a_cancel_under_one_request_id_is_done_for_all(make_shop: MakeShop) -> None:
    app, _ = _failing()
    shop = make_shop(app, partitions=2)
    shop.submit("fail", {}, "j", due=shop.deployment.clock.now_us() + 3_600_000_000)
    cancelled = _while_working(shop, lambda client: client.cancel("j", "enough", timeout=10, request_id="r1"))
    assert len(set(cancelled)) == 1 and cancelled[0].state == "done"
    with Client(deployment=shop.deployment) as client:
        assert client.cancel("j", "enough", request_id="r1") == cancelled[0]
        with pytest.raises(CommandRefusedError, match="cancelled already"):
            client.cancel("j", "enough", request_id="r2")
    counts = Counter(shop.names("j"))
    assert (counts["JobCancelled"], counts["CommandRefused"]) == (1, 0)


def test_a_word_about_an_effect_is_taken_once_and_another_word_is_refused(make_shop: MakeShop) -> None:
    app, _ = _failing()
    shop = make_shop(app, partitions=2)
    shop.submit("doubt", {}, "j")
    shop.run()
    done, failed = Resolution(True, b'"receipt"'), Resolution(False)

    def give(client: Client, resolution: Resolution = done) -> Any:
        return client.resolve("j/call/k", resolution, "asked", timeout=10, request_id="r1")

    told = _while_working(shop, give)
    assert len(set(told)) == 1 and told[0].state == "done"
    with Client(deployment=shop.deployment) as client:
        assert give(client) == told[0]
        with pytest.raises(CommandRefusedError, match="recorded as succeeded"):
            give(client, failed)
    counts = Counter(shop.names("j"))
    assert (counts["EffectResolved"], counts["CommandRefused"]) == (1, 0)


def test_a_quarantine_under_one_request_id_is_recorded_once_everywhere(make_shop: MakeShop) -> None:
    app, _ = _failing()
    shop = make_shop(app, partitions=2)

    def both(client: Client) -> list[Any]:
        added = client.quarantine("fail", "bad", None, 10, request_id="r1")
        return [added, client.lift_quarantine("fail", "good", None, 10, request_id="r1")]

    told = _while_working(shop, both)
    with Client(deployment=shop.deployment) as client:
        told.append(both(client))
    for same in zip(*told, strict=True):
        assert len({one.command_id for one in same}) == 1
        assert all(one.recorded == (0, 1) and not one.waiting for one in same)
    counts = Counter(type(body).__name__ for body in shop.bodies())
    assert (counts["QuarantineAdded"], counts["QuarantineLifted"]) == (2, 2)


def test_commands_that_are_read_again_change_nothing(make_shop: MakeShop) -> None:
    """An operator rewinds the group: what was carried out once is not carried out again."""
    app, ran = _failing()
    shop = make_shop(app)
    shop.submit("fail", {}, "j")
    shop.run()
    with Client(deployment=shop.deployment) as client:
        client.retry("j", "again")
    shop.run()
    before = shop.names("j")
    log, group = shop.deployment.log, shop.deployment.group
    log.set_offsets(group, {(topic, 0): 0 for topic in (shop.topics.jobs, shop.topics.commands)})
    shop.run()
    assert [name for name in shop.names("j") if name != "SubmissionDuplicated"] == before
    assert len(ran) == 2


@pytest.mark.process
def test_a_fork_under_one_request_id_is_one_branch(
    make_shop: MakeShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_LEDGER", str(tmp_path / "ledger"))
    shop = make_shop(replay_shop.app)
    shop.submit("order", {"order_id": "o1", "customer": "c1", "amount": 10}, "j", key="customer:c1")
    shop.run()
    place = "tests.support.replay_shop:app"
    options = ForkOptions(request_id="r1")
    told = _at_once(shop, lambda client: fork(client.deployment, "j", place, options).shown)
    (branch,) = branches.list_branches(shop.deployment)
    assert branch.status == "complete"
    assert [(one["branch"], one["outcome"], one["diff"]) for one in told] == [
        (branch.name, "succeeded", told[0]["diff"])
    ] * AT_ONCE
    events = branches.records(shop.deployment, branch)
    assert fork(shop.deployment, "j", place, options).shown["branch"] == branch.name
    assert branches.records(shop.deployment, branch) == events
    with pytest.raises(Refused, match="used for another fork"):
        fork(shop.deployment, "j", place, ForkOptions(Wanted(before="charge"), request_id="r1"))
    other = fork(shop.deployment, "j", place, ForkOptions(request_id="r2")).shown["branch"]
    assert [one.name for one in branches.list_branches(shop.deployment)] == [branch.name, other]
    assert (tmp_path / "ledger").read_text().count("\n") == 1


@pytest.mark.process
def test_of_forks_that_ask_for_one_name_at_once_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_LEDGER", str(tmp_path / "ledger"))
    shop = Shop(tmp_path, replay_shop.app)
    shop.submit("order", {"order_id": "o1", "customer": "c1", "amount": 10}, "j", key="customer:c1")
    shop.run()

    def give(client: Client) -> str:
        try:
            place = "tests.support.replay_shop:app"
            return str(fork(client.deployment, "j", place, ForkOptions(name="mine")).shown["outcome"])
        except branches.BranchExists:
            return "taken"

    assert Counter(_at_once(shop, give)) == {"succeeded": 1, "taken": AT_ONCE - 1}
    (branch,) = branches.list_branches(shop.deployment)
    assert branch.status == "complete"
    seqs = [record.seq for record in branches.records(shop.deployment, branch)]
    assert seqs == sorted(set(seqs))
