"""What the working set keeps in memory: jobs that are not over, up to a bound of their payloads' bytes."""

from __future__ import annotations

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core.fold import apply_record
from rewindq.engine.ports.store import Family, Version
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.working import WorkingSet

PAYLOAD = b"x" * 300


class Counted(MemoryStore):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[Family, bytes]] = []

    def get(self, family: Family, key: bytes) -> bytes | None:
        self.reads.append((family, key))
        return super().get(family, key)

    def latest(self, family: Family, key: bytes) -> Version | None:
        self.reads.append((family, key))
        return super().latest(family, key)


class Partition:
    """Jobs of a partition whose store counts its reads."""

    def __init__(self, payloads_max: int) -> None:
        self.store = Counted()
        self.states = WorkingSet(self.store, payloads_max=payloads_max)
        self._seq = 0

    def add(self, job_id: str, *bodies: e.Body) -> None:
        for body in bodies:
            apply_record(
                self.states,
                e.EventRecord(self._seq, self._seq, 0, 1, "w", job_id, 1, (e.Event(body),), trace_id=job_id),
            )
            self._seq += 1

    def accept(self, job_id: str) -> None:
        self.add(job_id, e.JobAccepted("t", job_id, PAYLOAD, None, "d", 0, None, 0, 0))

    def write(self) -> None:
        number, changes = self.states.collect()
        self.store.write(changes)
        self.states.stored(number)
        self.store.reads.clear()

    def read_again(self, *job_ids: str) -> int:
        """How many of these jobs' heads come from the store."""
        self.store.reads.clear()
        heads = [self.states.head(job_id) for job_id in job_ids]
        assert [head and head.payload for head in heads] == [PAYLOAD] * len(job_ids)
        return len(self.store.reads)


def test_a_job_that_is_over_is_kept_no_longer_than_its_turn() -> None:
    partition = Partition(payloads_max=10**6)
    partition.accept("waits")
    partition.accept("runs")
    partition.add("runs", e.AttemptStarted(0, None), e.JobSucceeded(None, None, 1))
    assert partition.read_again("waits", "runs") == 0, "not in the store yet"
    partition.write()

    assert partition.read_again("waits") == 0
    assert partition.read_again("runs") == 1
    job = partition.states.job("runs")
    assert (job is not None and job.status) == s.SUCCEEDED
    assert partition.store.reads[1:] == [(Family.JOBS, b"runs")]


def test_payloads_are_kept_up_to_a_bound() -> None:
    jobs = [f"j{n}" for n in range(20)]
    partition = Partition(payloads_max=10 * len(PAYLOAD))
    for job_id in jobs:
        partition.accept(job_id)
    partition.write()
    assert partition.read_again(*jobs[-7:]) == 0, "the newest, three quarters of the bound"
    assert partition.read_again(*jobs[:13]) == 13
    partition.write()
    assert partition.read_again(*jobs) == 20 - 7, "what was read back counts, too"
    assert partition.states.job("j0") is not None
    assert (Family.JOBS, b"j0") not in partition.store.reads, "what is small stays"


def test_what_was_dropped_gives_its_room_back() -> None:
    partition = Partition(payloads_max=10 * len(PAYLOAD))
    for turn in range(20):
        for n in range(5):
            partition.accept(f"j{turn}-{n}")
            partition.add(f"j{turn}-{n}", e.AttemptStarted(0, None), e.JobSucceeded(None, None, 1))
        partition.write()
    partition.accept("last")
    partition.write()
    assert partition.read_again("last") == 0
