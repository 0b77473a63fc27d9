"""The supervisor's sum: what a killed process did is counted by the log, not by what it told last."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from rewindq.engine.ports.log import LogUnavailable
from rewindq.processors.worker import daemon
from rewindq.processors.worker.report import Report

pytestmark = pytest.mark.process

#: Told to stop, it has done 3 jobs; what it does before depends on how often it was started.
CHILD = """
import json, os, pathlib, signal, sys
again = pathlib.Path(sys.argv[1])
def tell(**report):
    os.write(int(sys.argv[-1]), (json.dumps(report) + "\\n").encode())
def stop(*_):
    tell(succeeded=3, worker="second", owned=1, idle=True)
    sys.exit(0)
if not again.exists():
    again.touch()
    tell(succeeded=1, retried=7, worker="first", handovers=1, handover_max_s=0.5)
    {end}
signal.signal(signal.SIGTERM, stop)
tell(worker="second", owned=1, idle=True)
while True:
    signal.pause()
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(autouse=True)
def _signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(daemon, "RESTART_DELAY", 0.0)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _run(folder: Path, end: str, tally: Callable[[Collection[str]], Report]) -> Report:
    command = [sys.executable, "-c", CHILD.replace("{end}", end), str(folder / "again")]
    return daemon.Supervisor([command], until_idle=True, partitions=1, tally=tally).run()


def test_a_killed_process_counts_by_the_log(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def tally(workers: Collection[str]) -> Report:
        asked.append(list(workers))
        return Report(succeeded=5, failed=2)

    report = _run(tmp_path, KILLED, tally)
    assert asked == [["first"]]
    assert (report.succeeded, report.failed, report.retried, report.processed) == (8, 2, 0, 10)
    assert (report.handovers, report.handover_max_s) == (1, 0.5)
    assert not report.at_least


def test_a_sum_that_cannot_be_known_says_so(tmp_path: Path) -> None:
    def tally(workers: Collection[str]) -> Report:
        raise LogUnavailable("the log is away")

    report = _run(tmp_path, KILLED, tally)
    assert (report.succeeded, report.at_least) == (4, True)


def test_nothing_is_asked_of_the_log_while_all_end_in_order(tmp_path: Path) -> None:
    (tmp_path / "again").touch()
    assert _run(tmp_path, KILLED, lambda _: pytest.fail("asked")).succeeded == 3


def test_who_dies_again_and_again_is_given_up_and_nobody_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "RESTARTS_MAX", 3)
    steady = [sys.executable, "-c", CHILD.replace("{end}", "pass"), str(tmp_path / "steady")]
    dying = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    (tmp_path / "steady").touch()
    children: list[daemon._Child] = []
    init = daemon._Child.__init__

    def noted(self: daemon._Child, command: list[str]) -> None:
        init(self, command)
        children.append(self)

    monkeypatch.setattr(daemon._Child, "__init__", noted)
    supervisor = daemon.Supervisor([steady, dying], until_idle=False, partitions=1, tally=lambda _: Report())
    with pytest.raises(SystemExit):
        supervisor.run()
    assert len(children) == 5
    assert all(child.process.poll() is not None for child in children)
