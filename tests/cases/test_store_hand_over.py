"""A partition passes on while its store is slow to close, read, or just being written by one that is killed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.payments import wait_until
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq.engine.ports.store import Family, Put, Store, StoreError, StoreInUse
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings, load_settings
from rewindq.engine.store import generations
from rewindq.processors.worker import takeover

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]
JOBS = 24


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    settings = load_settings(log=f"sqlite:///{tmp_path}/log.db", state_dir=tmp_path / "state")
    with Deployment.open(settings) as opened:
        yield opened


def _current(deployment: Deployment) -> Store:
    return generations.open_current(deployment.partition_folder(0), branch="", partition=0)


def test_a_store_that_closes_slowly_is_waited_for_and_never_replaced_by_an_empty_one(deployment: Deployment) -> None:
    held = _current(deployment)
    held.write([Put(Family.META, b"k", b"v")])
    waits: list[float] = []
    pause = threading.Event()

    def until_closed(seconds: float) -> None:
        waits.append(seconds)
        pause.wait(seconds)
        if len(waits) == 10:
            held.close()

    store = takeover._open(deployment, 0, until_closed)
    assert store.get(Family.META, b"k") == b"v"
    assert [found.name for found in deployment.partition_folder(0).iterdir()] == ["g1"]
    store.close()


def test_a_store_that_never_closes_is_copied_after_a_bounded_wait(deployment: Deployment) -> None:
    held = _current(deployment)
    held.write([Put(Family.META, b"k", b"v")])
    waited: list[float] = []
    store = takeover._open(deployment, 0, waited.append)
    assert sum(waited) < takeover.STORE_WAIT + 1
    assert store.get(Family.META, b"k") == b"v"
    with pytest.raises(StoreInUse):
        _current(deployment)
    for each in (store, held):
        each.close()


def test_scans_under_way_while_a_store_is_handed_over_end_by_name(deployment: Deployment) -> None:
    store = _current(deployment)
    store.write([Put(Family.META, b"%05d" % number, b"v" * 100) for number in range(3000)])
    begun, ends = threading.Barrier(4), []

    def export() -> None:
        try:
            begun.wait(20)
            while True:
                for _ in store.scan(Family.META):
                    pass
        except StoreError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=export) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(20)
    store.close()
    for thread in threads:
        thread.join(20)
    assert len(ends) == 3 and all("is closed" in end for end in ends)
    again = _current(deployment)
    assert sum(1 for _ in again.scan(Family.META)) == 3000
    again.close()


def test_kills_in_the_middle_of_hand_overs_leave_no_partition_behind(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    submit_work(settings, [0.3] * JOBS)
    options = ("--concurrency", "2", "--grace", "1", "--name", "w")
    workers = [Running(settings, ledger, *options)]
    try:
        workers[0].await_line("partition taken")
        for _ in range(2):
            workers.append(Running(settings, ledger, *options))
            workers[-1].await_line("partition taken")
            workers[-2].process.send_signal(signal.SIGTERM)
            workers[-1].process.kill()  # in the middle of taking the other one's partitions over
            workers.append(Running(settings, ledger, *options))
            workers[-1].await_line("partition taken")
        wait_until(lambda: event_counts(settings)["JobSucceeded"] == JOBS, "all is done", 60)
        workers[-1].stop()
    finally:
        for worker in workers:
            worker.kill()
    assert len({call.key for call in calls(ledger)}) == len(calls(ledger)) == JOBS
    assert not any("set aside" in line or "Traceback" in line for worker in workers for line in worker.told)
    assert {worker.process.returncode for worker in workers} <= {0, -signal.SIGKILL}
