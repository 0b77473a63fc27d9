"""Checks a real log: its invariants, that no submission was lost, and that live stores equal a rebuild from nothing.

A running worker is no hindrance: each partition is read to its end at that moment, and its store is compared as of the
position that it shows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..codec.avro import UndecodableRecord
from ..core import events as e
from ..core import state as s
from ..core.merge import GapInLog
from ..core.requests import SAVE
from ..core.state import DONE
from ..ports.log import LogDamaged
from ..ports.store import Family, Store, StoreError
from ..store.newest import NOT_CONTENT, read_counts, read_positions
from ..store.opener import open_reader, open_store
from ..store.reader import ReadStore
from . import checks
from .check_keys import second_successes, unfounded_claims
from .checks import PartitionChecks, Violation
from .deployment import Deployment
from .pending import committed_offsets, read_from
from .rebuild import Rebuild

#: Violations listed; more are only counted.
LISTED_MAX = 1000
#: Called with a partition and the number of its events read so far.
Progress = Callable[[int, int], None]


class PartitionReport(NamedTuple):
    """What was found on a partition. Digests are those of the live store and of the rebuild at its position."""

    partition: int
    events: int
    jobs: Counter[str]
    digest: str | None
    rebuilt_digest: str | None


class Verifier:
    """One run of the checks. `report` gives INTERFACE's form."""

    def __init__(self, deployment: Deployment, progress: Progress | None = None) -> None:
        self._deployment = deployment
        self._progress = progress
        self._violations: list[Violation] = []
        self._notes: list[str] = []
        self._accepted: dict[str, int] = {}
        self._found: dict[int, PartitionChecks] = {}
        topics = deployment.topics
        self._words = {
            topics.jobs: "jobs",
            topics.commands: "commands",
            topics.lifecycle: "lifecycle",
            topics.domain: "domain",
        }

    def run(self) -> dict[str, Any]:
        """Checks all partitions; returns `{"ok", "events", "jobs", "violations", "notes", "digest", ...}`."""
        # Read first: what is taken in afterwards lies behind these offsets and is not asked for.
        committed = committed_offsets(self._deployment)
        reports = [self._partition(number, committed) for number in range(self._deployment.partitions)]
        self._check_remote_writes()
        self._check_global_keys()
        compared = [report for report in reports if report.digest is not None]
        if not compared:
            self._notes.append(
                f"no store in {self._deployment.settings.state_dir}: nothing to compare the rebuild with"
            )
        jobs = sum((report.jobs for report in reports), Counter[str]())
        shown = self._violations[:LISTED_MAX]
        return {
            "ok": not self._violations,
            "events": sum(report.events for report in reports),
            "jobs": sum(jobs.values()),
            "by_status": dict(sorted(jobs.items())),
            "violations": [violation._asdict() for violation in shown],
            "violations_total": len(self._violations),
            "notes": self._notes,
            "digest": _joined([(report.partition, report.digest) for report in compared]),
            "rebuilt_digest": _joined([(report.partition, report.rebuilt_digest) for report in compared]),
        }

    def _broken(self, kind: str, partition: int, detail: str) -> None:
        self._violations.append(Violation(kind, f"p{partition}", None, detail))

    # --- one partition ---

    def _partition(self, partition: int, committed: dict[tuple[str, int], int]) -> PartitionReport:
        found = PartitionChecks(partition, self._words, self._violations.append)
        live = self._live(partition)
        folder = tempfile.mkdtemp(prefix="rewindq-verify-")
        store = open_store(str(Path(folder) / "store"), branch="", partition=partition)
        try:
            rebuild = Rebuild(self._deployment, partition, store, found.take)
            digests = self._compare(partition, rebuild, store, live)
            counts = found.end()
            if rebuild.failure is None:
                self._check_indexes(partition, store, counts)
                found.reverts.compare(store)
            else:
                self._broken("fold", partition, str(rebuild.failure))
        except (GapInLog, LogDamaged) as error:
            self._broken("seq_gap" if isinstance(error, GapInLog) else "log_damaged", partition, str(error))
            digests, counts = (None, None), Counter(job.place for job in found.jobs.values())
        finally:
            store.close()
            shutil.rmtree(folder, ignore_errors=True)
            if live is not None:
                live.close()
        self._check_inputs(partition, found, committed)
        self._check_homes(partition, found)
        self._found[partition] = found
        for merged in found.stale:
            self._notes.append(f"{merged.topic} p{partition} offset {merged.offset} is stale: {merged.stale}")
        return PartitionReport(partition, found.events, counts, *digests)

    def _live(self, partition: int) -> ReadStore | None:
        path = self._deployment.store_path(partition)
        if not path.exists():
            return None
        try:
            return open_reader(str(path))
        except StoreError as error:
            self._broken("store", partition, f"{error}. It is only a cache: move it away, it is rebuilt from the log")
            return None

    def _compare(
        self, partition: int, rebuild: Rebuild, store: Store, live: ReadStore | None
    ) -> tuple[str | None, str | None]:
        """Folds the whole partition into `store`; the live store's digest and the rebuild's at the same position."""
        positions = None if live is None else read_positions(live)
        stop = None if positions is None else positions.seq
        digests: tuple[str | None, str | None] = (None, None)
        if live is not None and stop is not None and rebuild.run(stop, self._progress):
            digests = (live.digest(skip=NOT_CONTENT), store.digest(skip=NOT_CONTENT))
            if digests[0] != digests[1]:
                detail = f"the store as of p{partition}@{stop} differs from its rebuild: {digests[0]}, {digests[1]}"
                self._broken("digest", partition, detail)
        elif stop is not None:
            detail = f"the store reflects events up to {stop}, but the log ends at {rebuild.next_seq}"
            self._broken("store_ahead", partition, detail)
        rebuild.run(None, self._progress)
        return digests

    def _check_indexes(self, partition: int, store: Store, counts: Counter[str]) -> None:
        """The fold's own counts and its ready and timer indexes must tell the same as the checks' count."""
        folded = read_counts(store)
        ready = sum(1 for _ in store.scan(Family.READY))
        timed = sum(1 for _ in store.scan(Family.TIMERS))
        waiting = folded.get(s.WAITING, 0)
        later = folded.get(s.DELAYED, 0) + folded.get(s.RETRYING, 0)
        pairs = {
            "queued": (waiting + later, counts[checks.QUEUED]),
            "running": (folded.get(s.RUNNING, 0), counts[checks.RUNNING]),
            "in investigation": (folded.get(s.INVESTIGATION, 0), counts[checks.PARKED]),
            "succeeded": (folded.get(s.SUCCEEDED, 0), counts[checks.SUCCEEDED]),
            "cancelled": (folded.get(s.CANCELLED, 0), counts[checks.CANCELLED]),
            "in the ready index": (ready, waiting),
            "in the timer index": (timed, later),
        }
        for name, (got, expected) in pairs.items():
            if got != expected:
                self._broken("counts", partition, f"{got} jobs are {name}, {expected} were counted")

    # --- inputs ---

    def _check_inputs(self, partition: int, found: PartitionChecks, committed: dict[tuple[str, int], int]) -> None:
        for topic, lost in (
            (self._deployment.topics.jobs, _lost_job),
            (self._deployment.topics.commands, _lost_command),
        ):
            end = committed.get((topic, partition))
            low, _ = self._deployment.log.bounds(topic, partition)
            if end is None or low >= end:
                continue
            for record in read_from(self._deployment, topic, partition, low):
                if record.offset >= end:
                    break
                if record.offset in found.taken_in[self._words[topic]]:
                    continue
                what = lost(self._deployment, record.value, found)
                if what is None:
                    continue
                if topic == self._deployment.topics.jobs and any(record.offset in one for one in found.skipped):
                    self._notes.append(
                        f"{topic} p{partition} offset {record.offset} was skipped by an operator: {what}"
                    )
                    continue
                detail = f"{topic} offset {record.offset} ({what}) was passed over and no event accounts for it"
                self._broken("lost_input", partition, detail)

    def _check_homes(self, partition: int, found: PartitionChecks) -> None:
        for job_id in found.jobs:
            other = self._accepted.setdefault(job_id, partition)
            if other != partition:
                detail = f"job {job_id} was accepted on partition {other}, too: one id was submitted under two keys"
                self._broken("job_on_two_partitions", partition, detail)

    def _check_remote_writes(self) -> None:
        """What a job was told of a write elsewhere must stand there. What was read too early is not compared."""
        for partition, found in self._found.items():
            for position, write in found.told:
                home, _, seq = position.removeprefix("p").partition("@")
                there = self._found.get(int(home)) if home.isdecimal() and seq.isdecimal() else None
                if there is not None and int(seq) >= there.next_seq:
                    continue
                if there is None or there.written.get(int(seq)) != write:
                    detail = (
                        f"{write.job_id} was told that it wrote {write.resource} version {write.version} at {position}"
                    )
                    self._broken("remote_write", partition, f"{detail}, which holds no such write")

    def _check_global_keys(self) -> None:
        """One success under each, and no claim that its home does not hold."""
        for partition, detail in second_successes(found.keys for found in self._found.values()):
            self._broken("second_success", partition, detail)
        read = {partition: (found.keys, found.next_seq) for partition, found in self._found.items()}
        for partition, detail in unfounded_claims(read):
            self._broken("claim", partition, detail)


def _lost_job(deployment: Deployment, value: bytes | None, found: PartitionChecks) -> str | None:
    """What a jobs record is that no event accounts for."""
    try:
        return f"job {deployment.codec.decode(value).job_id}"
    except UndecodableRecord as error:
        return str(error)


def _lost_command(deployment: Deployment, value: bytes | None, found: PartitionChecks) -> str | None:
    """The same of a command; None where its answer is among the events."""
    try:
        record = deployment.codec.decode(value)
    except UndecodableRecord as error:
        return str(error)
    for event in record.events:
        body = event.body
        if isinstance(body, e.LeaseProbe):
            return None  # it leaves no event, unless it finds a deadlock
        if isinstance(body, e.ResourceReply) or (isinstance(body, e.ResourceRequest) and body.op != SAVE):
            return None  # an attempt that is over takes no reply in, and a load leaves nothing but its reply
        if isinstance(body, e.ClaimReply | e.ClaimRequest) or (
            isinstance(body, e.SettleRequest) and body.outcome != DONE
        ):
            return None  # a claim may be given up while it waits
        if isinstance(body, e.SettleRequest):
            known = body.request_id in found.keys.settled or body.request_id in found.decided
            return None if known else f"a success that job {record.job_id} has told of"
        if isinstance(body, e.ResourceRequest):
            known = body.request_id in found.decided or record.causation_id in found.decided
            return None if known else f"a request of job {record.job_id}"
    known = any(getattr(event.body, "command_id", None) in found.commands for event in record.events)
    return None if known else f"a command about job {record.job_id}"


def _joined(digests: list[tuple[int, str | None]]) -> str | None:
    """SHA-256 over the partitions' digests."""
    if not digests or any(digest is None for _, digest in digests):
        return None
    return sha256("\n".join(f"p{partition} {digest}" for partition, digest in digests).encode()).hexdigest()


def verify(deployment: Deployment, progress: Progress | None = None) -> dict[str, Any]:
    """Checks the namespace's log. Raises NotCreated, LogUnavailable."""
    return Verifier(deployment, progress).run()
