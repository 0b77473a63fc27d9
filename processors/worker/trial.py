"""Submissions whose payload kills whoever reads it are found in a process of its own, and parked without being read.

An app's models run when a submission is taken in, before anything stands in the log that a death could be counted by.
So every fence tells where its owner's inputs began: one that begins where several before it began, with records there,
has reason to suspect them.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from itertools import islice

import structlog

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core import events as e
from rewindq.engine.core.merge import Fence
from rewindq.engine.ports.blobs import BlobMissing
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.pending import read_from

from .idle import read_to_end
from .intake import payload_bytes

log = structlog.get_logger(__name__)

#: Owners in a row that came no further than where they began; the next one has the inputs read on trial first.
STALLED_MAX = 2
#: An owner that found nothing to read, in its fence.
NOTHING_WAITS = -1
#: Records and bytes read on trial: more than a worker takes in before its first commit.
TRIAL_RECORDS, TRIAL_BYTES = 5_000, 64 * 2**20
#: What a child says when it has the app.
READY = "ready"


def stalled(deployment: Deployment, partition: int, fence: Fence, offset: int) -> int:
    """How many owners in a row, up to the fence's, began at an offset, with records there, and came no further.

    NOTHING_WAITS where there are none: who begins there does not count, since idle partitions pass on as often as
    workers come and go.
    """
    jobs = deployment.topics.jobs
    if not fence.epoch or fence.offset != offset:
        return 0 if offset < deployment.log.bounds(jobs, partition)[1] else NOTHING_WAITS
    # The log's end alone may be that of a transaction's mark.
    waits = read_to_end(deployment.log, {(jobs, partition): offset}) is None
    return fence.stalled + 1 if waits else NOTHING_WAITS


def find_killers(deployment: Deployment, place: str, partition: int, offset: int) -> dict[int, str]:
    """The submissions from an offset on that kill a process which reads them, by offset: why they are to be parked.

    `place` is the app's `module:attribute`.
    """
    waiting = _submissions(deployment, partition, offset)
    found: dict[int, str] = {}
    while waiting:
        code, told = _try(place, [line for _, line in waiting])
        if not told:
            log.warning(
                "no submission could be read on trial: the app does not load in a process of its own", app=place
            )
            break
        read = len(told) - 1
        if read >= len(waiting):
            break
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        killer = waiting[read][0]
        found[killer] = (
            f"its payload kills who takes it in: workers were lost, and a process that read it on trial ({how})"
        )
        log.error("a submission kills whoever reads it; it is parked", partition=partition, offset=killer, by=how)
        waiting = waiting[read + 1 :]
    return found


def _submissions(deployment: Deployment, partition: int, offset: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    size = 0
    for record in islice(read_from(deployment, deployment.topics.jobs, partition, offset), TRIAL_RECORDS):
        try:
            body = deployment.codec.decode(record.value).events[0].body
            if not isinstance(body, e.JobSubmitted):
                continue
            payload = payload_bytes(deployment, body.payload, body.payload_ref)
        except (UndecodableRecord, IndexError, BlobMissing):
            continue  # parked when its turn comes, without the app's code
        size += len(payload)
        if size > TRIAL_BYTES:
            break
        found.append((record.offset, json.dumps([body.type, base64.b64encode(payload).decode()])))
    return found


def _try(place: str, lines: list[str]) -> tuple[int, list[str]]:
    """How a child ended that reads these, and what it told: `READY`, then a line for each that it has read."""
    done = subprocess.run(
        [sys.executable, "-m", "rewindq.processors.worker.trial_child", place],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a traceback may hold what a payload keeps secret
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()
