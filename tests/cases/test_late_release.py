"""Whoever has lost a lease can give back nothing: a late release is refused by name, and the new holder keeps it.

Pinned down: a lease is given back and a write accepted under the grant's own request and token only
(`processors/worker/home.py: _release`, `engine/core/writes.py: decide_save`), and who waits gets it in order
(`processors/worker/waiting.py: freed`). A holder whose interpreter stands still is in
`tests/worker/test_other_partitions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.shop import Shop

from rewindq import App
from rewindq.engine.core import events as e
from rewindq.engine.core.requests import LEASE, RELEASE, SAVE
from rewindq.engine.log.opener import open_log
from rewindq.engine.runtime.settings import Settings
from rewindq.processors.worker.remote import Remote
from rewindq.processors.worker.worker import Worker

RESOURCE = "stock:1"


@pytest.fixture
def shop(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    # The askers are records only: nothing of theirs runs that would give a grant back.
    monkeypatch.setattr(Remote, "_refuse_grant", lambda *_: None)
    log = open_log(settings.log)
    yield Shop(tmp_path, App("t"), log=log, namespace=settings.namespace)
    log.close()


def _ask(shop: Shop, request_id: str, op: str, token: int | None = None, **fields: Any) -> None:
    """A request as a job of another partition would send it; its job is what its id begins with."""
    job_id = request_id.partition("/")[0]
    body = e.ResourceRequest(request_id, op, 0, **fields)
    event = e.Event(body, resource=RESOURCE, fencing_token=token, step=op)
    record = e.EventRecord(e.UNNUMBERED, 5, 1_790_000_000_000_000, 1, "w", job_id, 1, (event,))
    shop.append(shop.topics.commands, shop.deployment.codec.encode(record), partition=0)


def _told(shop: Shop) -> list[tuple[str, str, int | None]]:
    """What the home decided, in order: event, job, token."""
    shown = (e.LeaseAcquired, e.LeaseReleased, e.LeaseExpired, e.RequestRefused, e.WriteFenced, e.StateChanged)
    return [
        (type(event.body).__name__, record.job_id or "", event.fencing_token)
        for record in shop.records()
        for event in record.events
        if isinstance(event.body, shown)
    ]


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


def test_only_the_holder_gives_a_lease_back(shop: Shop) -> None:
    told: list[tuple[str, str, int | None]] = []

    async def scenario(worker: Worker) -> None:
        async def after(*lines: tuple[str, str, int | None]) -> None:
            told.extend(lines)
            await _until(lambda: len(_told(shop)) >= len(told))

        _ask(shop, "a/1/1", LEASE, ttl=400, wait=0)
        await after(("LeaseAcquired", "a", 1))
        _ask(shop, "b/1/1", LEASE, ttl=20_000, wait=20_000)
        _ask(shop, "a/2/1", LEASE, ttl=20_000, wait=20_000)
        await after(("LeaseExpired", "a", 1), ("LeaseAcquired", "b", 2))
        _ask(shop, "a/1/1", RELEASE)
        _ask(shop, "a/1/2", SAVE, 1, changes=b'{"by":"a"}', expected=0)
        _ask(shop, "b/1/2", SAVE, 2, changes=b'{"by":"b"}', expected=0)
        await after(("RequestRefused", "a", None), ("WriteFenced", "a", 1), ("StateChanged", "b", 2))
        _ask(shop, "b/1/1", RELEASE)
        _ask(shop, "b/1/1", RELEASE)
        await after(("LeaseReleased", "b", 2), ("LeaseAcquired", "a", 3), ("RequestRefused", "b", None))
        _ask(shop, "a/1/1", RELEASE)  # of the same job, whose newer lease it is not
        await after(("RequestRefused", "a", None))
        _ask(shop, "a/2/1", RELEASE)
        await after(("LeaseReleased", "a", 3))
        worker.stop()

    shop.run(lambda report: False, scenario)

    assert _told(shop) == told
    refused = [body for body in shop.bodies() if isinstance(body, e.RequestRefused)]
    assert [body.reason.partition("any more; ")[2] for body in refused] == ["b does", "a does", "a does"]
    assert shop.aggregate(RESOURCE).data == {"by": "b"}
