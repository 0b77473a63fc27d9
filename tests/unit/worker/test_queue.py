"""Which waiting job runs next, against a list that is searched from its beginning each time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rewindq.processors.worker.queue import AGE_STEP, Ready, ReadyQueue, age, ready

LIMITS = {"slow": 1, "pair": 2}
TYPES = ("free", *LIMITS)
RESOURCES = (None, "r1", "r2")


class Naive:
    """Waiting jobs in one list."""

    def __init__(self) -> None:
        self.waiting: dict[str, Ready] = {}
        self.held: dict[str, str] = {}
        self.blocks: dict[str, int] = {}
        self.groups: Counter[str] = Counter()

    def blocked(self, entry: Ready) -> bool:
        first = self.blocks.get(entry.resource or "")
        return first is not None and entry.accepted_seq > first

    def pop(self, full: set[str]) -> Ready | None:
        fit = [e for e in self.waiting.values() if e.resource not in self.held and e.type not in full]
        fit = [e for e in fit if not self.blocked(e)]
        fit = [e for e in fit if e.group is None or self.groups[e.group] < e.limit]
        if not fit:
            return None
        entry = min(fit)
        del self.waiting[entry.job_id]
        if entry.resource is not None:
            self.held[entry.resource] = entry.job_id
        if entry.group is not None:
            self.groups[entry.group] += 1
        return entry


class QueueMachine(RuleBasedStateMachine):
    """Jobs come, start, end, are cancelled and sent back; leases hold resources; other partitions run jobs too."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.naive = ReadyQueue(), Naive()
        self.running: dict[str, Ready] = {}
        self.elsewhere: list[str] = []
        self.leases: set[str] = set()
        self.accepted = 0

    def full(self) -> set[str]:
        busy = [entry.type for entry in self.running.values()] + self.elsewhere
        return {name for name, limit in LIMITS.items() if busy.count(name) >= limit}

    @rule(
        priority=st.integers(-2, 2),
        job_type=st.sampled_from(TYPES),
        resource=st.sampled_from(RESOURCES),
        group=st.sampled_from((None, "g1", "g2")),
        limit=st.integers(1, 2),
    )
    def submit(self, priority: int, job_type: str, resource: str | None, group: str | None, limit: int) -> None:
        self.accepted += 1
        entry = ready(priority, self.accepted, f"job{self.accepted}", job_type, resource, group, limit)
        self.queue.push(entry)
        self.queue.push(entry)
        self.naive.waiting[entry.job_id] = entry

    @rule()
    def start(self) -> None:
        full = self.full()
        entry = self.queue.pop(full)
        assert entry == self.naive.pop(full)
        if entry is not None:
            self.running[entry.job_id] = entry

    @precondition(lambda self: self.running)
    @rule(data=st.data(), again=st.booleans())
    def end(self, data: st.DataObject, again: bool) -> None:
        entry = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self._end(entry)
        if again:  # handed back, or retried by an operator: it keeps its place
            self.queue.push(entry)
            self.naive.waiting[entry.job_id] = entry

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.naive.waiting)))
        self.queue.remove(job_id)
        del self.naive.waiting[job_id]

    @rule(resource=st.sampled_from(RESOURCES[1:]))
    def lease(self, resource: str) -> None:
        if resource not in self.naive.held:
            self.queue.hold(resource, "lease")
            self.naive.held[resource] = "lease"
            self.leases.add(resource)

    @precondition(lambda self: self.leases)
    @rule()
    def release(self) -> None:
        self._free(self.leases.pop())

    @rule(resource=st.sampled_from(RESOURCES[1:]), back=st.none() | st.integers(0, 5))
    def block(self, resource: str, back: int | None) -> None:
        """A job that was accepted so many jobs ago failed, or the last that failed has ended."""
        if back is None:
            self.naive.blocks.pop(resource, None)
        else:
            self.naive.blocks[resource] = self.accepted - back
        self.queue.block(resource, self.naive.blocks.get(resource))

    @rule(job_type=st.sampled_from(sorted(LIMITS)))
    def start_elsewhere(self, job_type: str) -> None:
        if job_type not in self.full():
            self.elsewhere.append(job_type)

    @precondition(lambda self: self.elsewhere)
    @rule()
    def end_elsewhere(self) -> None:
        self.elsewhere.pop()

    def _end(self, entry: Ready) -> None:
        self._free(entry.resource)
        if entry.group is not None:
            self.naive.groups[entry.group] -= 1
            self.queue.leave(entry.group)

    def _free(self, resource: str | None) -> None:
        if resource is not None:
            del self.naive.held[resource]
            self.queue.free(resource)

    @invariant()
    def same_size_and_holders(self) -> None:
        assert len(self.queue) == len(self.naive.waiting)
        assert {r: self.queue.holder(r) for r in RESOURCES[1:]} == {r: self.naive.held.get(r) for r in RESOURCES[1:]}

    @invariant()
    def stuck_are_blocked(self) -> None:
        assert self.queue.stuck <= sum(map(self.naive.blocked, self.naive.waiting.values()))

    def teardown(self) -> None:
        """Once nothing holds them up, all jobs run."""
        self.elsewhere.clear()
        for resource in list(self.naive.blocks):
            self.block(resource, None)
        while self.leases:
            self.release()
        while self.running or self.naive.waiting:
            for entry in list(self.running.values()):
                del self.running[entry.job_id]
                self._end(entry)
            waiting = len(self.naive.waiting)
            self.start()
            assert waiting == 0 or len(self.naive.waiting) < waiting


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40)


def drained(queue: ReadyQueue) -> list[str]:
    return [entry.job_id for entry in iter(queue.pop, None)]


@given(jobs=st.lists(st.integers(-3, 3), max_size=20))
def test_higher_priority_first_then_age(jobs: list[int]) -> None:
    queue = ReadyQueue()
    queue.extend(ready(priority, at, f"{at}", "t", None) for at, priority in enumerate(jobs))

    expected = sorted(range(len(jobs)), key=lambda at: (-jobs[at], at))
    assert drained(queue) == [str(at) for at in expected]


def test_a_busy_resource_holds_nobody_else_up() -> None:
    queue = ReadyQueue()
    queue.extend(ready(0, at, name, "t", name[0]) for at, name in enumerate(["a1", "a2", "a3", "b1"]))

    assert drained(queue) == ["a1", "b1"]
    queue.free("a")
    assert drained(queue) == ["a2"]


def test_a_job_that_waits_for_its_type_holds_its_resource_up_for_nobody() -> None:
    queue = ReadyQueue()
    queue.hold("r", "lease")
    queue.push(ready(0, 1, "of a full type", "slow", "r"))
    queue.push(ready(0, 2, "of another", "free", "r"))
    assert queue.pop({"slow"}) is None
    queue.free("r")

    entry = queue.pop({"slow"})
    assert entry is not None
    assert entry.job_id == "of another"


def test_a_place_of_a_type_is_not_lost_on_a_job_that_cannot_run() -> None:
    queue = ReadyQueue()
    queue.push(ready(0, 1, "waits for r", "slow", "r"))
    queue.push(ready(0, 2, "cancelled", "slow", None))
    queue.push(ready(0, 3, "can run", "slow", None))
    assert queue.pop({"slow"}) is None
    queue.hold("r", "lease")
    queue.remove("cancelled")

    assert drained(queue) == ["can run"]


def test_a_place_that_became_free_on_another_partition_is_taken() -> None:
    queue = ReadyQueue()
    queue.push(ready(0, 1, "a", "slow", None))
    assert queue.pop({"slow"}) is None

    assert drained(queue) == ["a"]


def test_what_waits_behind_a_failed_job_is_stuck_and_holds_nobody_up() -> None:
    queue = ReadyQueue()
    queue.block("r", 2)
    queue.extend(ready(9 * at, at, f"r{at}", "t", "r") for at in range(1, 5))
    queue.push(ready(0, 5, "other", "t", "s"))

    assert drained(queue) == ["r2", "other"]
    assert queue.stuck == 2
    queue.free("r")
    assert drained(queue) == ["r1"]
    queue.free("r")
    queue.block("r", None)
    assert queue.stuck == 0
    assert drained(queue) == ["r4"]
    queue.remove("r3")
    queue.free("r")
    assert drained(queue) == []


@given(
    jobs=st.lists(st.tuples(st.integers(-1000, 1000), st.floats(0, 20_000)), max_size=30), now=st.floats(20_000, 1e6)
)
def test_a_job_gains_a_step_of_priority_as_it_waits(jobs: list[tuple[int, float]], now: float) -> None:
    """Whenever one looks: the order is that of the priorities with all that was gained until then."""
    jobs.sort(key=lambda job: job[1])
    queue = ReadyQueue()
    queue.extend(ready(p, at, f"{at}", "t", None, since=age(since)) for at, (p, since) in enumerate(jobs))

    def gained(at: int) -> int:
        priority, since = jobs[at]
        return priority + age(now) - age(since)

    assert drained(queue) == [str(at) for at in sorted(range(len(jobs)), key=lambda at: (-gained(at), at))]


def test_no_stream_of_urgent_jobs_starves_one() -> None:
    queue, now, ran = ReadyQueue(), 0.0, 0
    queue.push(ready(0, 0, "patient", "t", None, since=age(now)))
    while True:
        now += 1.0
        ran += 1
        queue.push(ready(1000, ran, f"urgent{ran}", "t", None, since=age(now)))
        entry = queue.pop()
        assert entry is not None
        if entry.job_id == "patient":
            break
    assert now == 1000 * AGE_STEP


def test_a_type_is_withdrawn_from_wherever_its_jobs_stepped_aside() -> None:
    queue = ReadyQueue({"t", "full", "other"})
    queue.block("b", 0)
    queue.push(ready(0, 1, "blocked", "t", "b"))
    queue.push(ready(0, 2, "runs", "other", "r", "g"))
    queue.push(ready(0, 3, "behind its resource", "t", "r"))
    queue.push(ready(0, 4, "behind its key", "t", None, "g"))
    queue.push(ready(0, 5, "full", "full", None))
    queue.push(ready(0, 6, "unknown", "new", None))
    assert [queue.pop({"full"}), queue.pop({"full"})][0] is not None
    assert (len(queue), queue.stuck) == (5, 2)
    for name, left in (("t", 2), ("full", 1), ("new", 0)):
        queue.withdraw(name)
        assert len(queue) == left
    assert queue.stuck == 0
