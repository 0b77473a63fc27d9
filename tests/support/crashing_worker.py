"""A worker process that kills itself with SIGKILL at one point of its n-th turn. Run as a program.

Arguments: log URL, namespace, state folder, point, turn number. Points are those of the commit protocol
(`processors/worker/committer.py`): `before-append`, `after-append`, `during-store`, `after-store`. With `never` it ends
when it is idle, with `stay` on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from rewindq.engine.runtime.settings import load_settings
from rewindq.processors.worker import committer, owner
from rewindq.processors.worker.daemon import DaemonOptions, run_worker
from rewindq.processors.worker.report import WorkerOptions


def die() -> None:
    """As kill -9 does it: nothing of this process runs after it."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, number: int) -> None:
    """Wraps the commit of turns that carry events, so that the n-th one ends this process."""
    commit, store = committer.Committer._commit, owner.ClosedTurn.store
    turns = 0

    def counted_commit(self, turns_closed):  # type: ignore[no-untyped-def]
        nonlocal turns
        turns += 1
        if turns == number and point == "before-append":
            die()
        commit(self, turns_closed)
        if turns == number and point == "after-store":
            die()

    def counted_store(self, offsets):  # type: ignore[no-untyped-def]
        if turns == number and point == "after-append":
            die()
        if turns == number and point == "during-store":
            threading.Timer(0.0, die).start()
            while True:
                store(self, offsets)
        store(self, offsets)

    committer.Committer._commit = counted_commit
    owner.ClosedTurn.store = counted_store


def main() -> None:
    """Runs the worker until it is idle, or dead."""
    log, namespace, state_dir, point, number = sys.argv[1:6]
    arm(point, int(number))
    settings = load_settings(log=log, namespace=namespace, state_dir=state_dir, partitions=4)
    report = run_worker(
        settings,
        DaemonOptions("tests.support.ledger_app:app", WorkerOptions(concurrency=8), until_idle=point != "stay"),
    )
    print(report.succeeded)


if __name__ == "__main__":
    main()
