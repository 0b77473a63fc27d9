"""A process that owns a store: it writes batches until it is told to stop, or killed.

`python store_process.py FOLDER SYNCED`: prints `ready`, then the number of each batch once it is written. With
SYNCED=1 it waits for a line on stdin before each batch, else it goes on at once.
"""

from __future__ import annotations

import sys

from rewindq.engine.ports.store import Delete, Family, Put, Store
from rewindq.engine.store.opener import open_store

POSITION = b"position"
JOBS_PER_BATCH = 40


def batch(number: int) -> list[Put | Delete]:
    """Batch `number`: in every family something of its own, and the position that tells it was written."""
    changes: list[Put | Delete] = []
    for job in range(JOBS_PER_BATCH):
        key = b"job-%d" % job
        changes += [
            Put(Family.JOBS, key, b"value %d" % number * 20, number),
            Put(Family.PAYLOADS, key, b"%d" % number * 30),
            Put(Family.READY, b"%08d-%s" % (number, key), b""),
            Delete(Family.READY, b"%08d-%s" % (number - 1, key)),
            Put(Family.AGGREGATES, b"%s-%d" % (key, number), b"v" * 100, number),
        ]
    return [*changes, Put(Family.META, POSITION, b"%d" % number)]


def written(store: Store, last: int) -> None:
    """Writes batches 1..last."""
    for number in range(1, last + 1):
        store.write(batch(number))


def main(folder: str, synced: bool) -> None:
    store = open_store(folder, branch="", partition=0)
    number = int(store.get(Family.META, POSITION) or b"0")
    print("ready", flush=True)
    while not synced or sys.stdin.readline():
        number += 1
        store.write(batch(number))
        print(number, flush=True)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1")
