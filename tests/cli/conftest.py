"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.apps import app
from tests.support.cli import Shell
from tests.support.shop import Shop

from rewindq.engine.runtime.client import Client


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder in which jobs have run: deposits d1, d2 (succeeded), d3 (investigation), echo e1; e2 is delayed.

    Tests only read it.
    """
    return filled(tmp_path_factory.mktemp("bank"))


@pytest.fixture
def own_bank(tmp_path: Path) -> Shell:
    """The same for one test, which may change it."""
    return filled(tmp_path)


def filled(folder: Path) -> Shell:
    """Runs the jobs of `bank` in a folder."""
    shop = Shop(folder / ".rewindq", app, partitions=2)
    with Client(deployment=shop.deployment, app=app) as client:
        for number, amount in enumerate(["1.10", "2.20", "-1"], 1):
            payload = {"account": "a", "amount": amount, "pin": "4711"}
            client.submit("deposit", payload, job_id=f"d{number}")
        client.submit("echo", {"text": "hello"}, job_id="e1")
        client.submit("echo", {"text": "later"}, job_id="e2", delay=3600)
    shop.run(until=lambda report: report.processed == 4)
    shop.deployment.close()
    return Shell(folder)
