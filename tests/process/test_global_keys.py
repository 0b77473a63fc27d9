"""Jobs of all partitions share keys, and the process that makes their calls is killed in the middle of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.payments import ROOT, append_jobs, wait_until
from tests.support.shared_app import calls

from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.effects import list_effects
from rewindq.engine.runtime.past import Past
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.verify import verify

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]
PAYMENTS = ("rent", "salary")
#: Orders at home on each partition, for each payment one.
ORDERS = [
    (str(next(n for n in range(start, start + 1000) if partition_for(f"order:{n}".encode(), 4) == partition)), payment)
    for start, payment in ((0, PAYMENTS[0]), (1000, PAYMENTS[1]))
    for partition in range(4)
]


def start(settings: Settings, ledger: Path, seconds: float, until_idle: str = "no") -> subprocess.Popen[bytes]:
    """A worker of the shared app."""
    arguments = [settings.log, settings.namespace, str(settings.state_dir), until_idle]
    environment = {**os.environ, "LEDGER": str(ledger), "CALL_SECONDS": str(seconds)}
    command = [sys.executable, "-m", "tests.support.shared_app", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def test_one_call_a_key_though_its_caller_is_killed_in_it(settings: Settings, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    payloads = [{"order": order, "payment": payment} for order, payment in ORDERS]
    append_jobs(settings, "pay", payloads, [f"order:{order}" for order, _ in ORDERS])
    workers = [start(settings, ledger, 600), start(settings, ledger, 600)]
    try:
        wait_until(lambda: bool(calls(ledger)), "a call is under way", 60)
        victim = next(one for one in workers if one.pid == calls(ledger)[0][1])
        victim.kill()
        victim.wait()
        wait_until(lambda: {key for key, _ in calls(ledger)} == keys(), "every key is called", 90)
        # Whoever makes the other call, if it lives, would answer in ten minutes: it is killed in it, too.
        for one in workers:
            one.kill()
            one.wait()
        workers.append(start(settings, ledger, 0.1, "yes"))
        assert workers[-1].wait(120) == 0
    finally:
        for one in workers:
            if one.poll() is None:
                one.kill()
                one.wait()

    assert Counter(key for key, _ in calls(ledger)) == dict.fromkeys(keys(), 1)
    with Deployment.open(settings) as deployment:
        with Client(deployment=deployment) as client:
            results = [client.result(f"job-{number}", timeout=5) for number in range(len(ORDERS))]
        assert results == [f"receipt of {payment}" for _, payment in ORDERS]
        with Past(deployment) as past:
            found, _ = list_effects(past)
            assert {one.key: values.decode(one.record.answer or b"") for one in found} == {
                f"/serve/{payment}": f"receipt of {payment}" for payment in PAYMENTS
            }
            assert {one.key: one.partition for one in found} == {
                f"/serve/{payment}": partition_for(payment.encode(), 4) for payment in PAYMENTS
            }
        report = verify(deployment)
        assert report["violations"] == []
        assert report["by_status"] == {"succeeded": len(ORDERS)}
        assert report["digest"] == report["rebuilt_digest"]


def keys() -> set[str]:
    """The whole keys."""
    return {f"/serve/{payment}" for payment in PAYMENTS}
