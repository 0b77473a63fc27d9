"""Probes through every small graph of who waits for whom: all that are on a cycle find it, and nobody else does."""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from rewindq.engine.core import values
from rewindq.engine.core.deadlock import (
    HOPS_MAX,
    BadPath,
    Link,
    Path,
    decode_path,
    detected,
    encode_path,
    follow,
    in_words,
    victim,
)

#: Of each job, the jobs that hold what it waits for, one request each. A job holds one resource, its own.
Graph = tuple[tuple[int, ...], ...]


def link(job: int, target: int, holds: str | None, attempt: int = 1) -> Link:
    return Link(f"{job}/{target}", f"job-{job}", attempt, job, holds, f"r{target}")


def probe(graph: Graph, job: int, target: int, attempts: tuple[int, ...] = (1,) * 9) -> list[Path]:
    """All cycles that a probe of the job's request finds, going on once from each request."""
    found: list[Path] = []
    open_paths: list[Path] = [(link(job, target, None, attempts[job]),)]
    seen: set[str] = set()
    while open_paths:
        path = open_paths.pop(0)
        holder = int(path[-1].waits[1:])
        waiting = [link(holder, other, path[-1].waits, attempts[holder]) for other in graph[holder]]
        followed = follow(path, waiting)
        found += followed.cycles
        for longer in followed.paths:
            if longer[-1].request_id not in seen:
                seen.add(longer[-1].request_id)
                open_paths.append(longer)
    return found


def reaches(graph: Graph, start: int, end: int) -> bool:
    found, new = {start}, [start]
    while new:
        for target in graph[new.pop()]:
            if target not in found:
                found.add(target)
                new.append(target)
    return end in found


def test_of_jobs_that_wait_for_one_thing_each_just_those_on_a_cycle_find_it() -> None:
    for graph in product([(), (0,), (1,), (2,), (3,), (4,)], repeat=5):
        told: dict[frozenset[str], set[tuple[str, str]]] = {}
        for job, targets in enumerate(graph):
            for target in targets:
                cycles = probe(graph, job, target, attempts=(2, 1, 1, 3, 1))
                on_cycle = reaches(graph, target, job)
                assert len(cycles) == on_cycle, (graph, job)
                for cycle in cycles:
                    members = frozenset(one.job_id for one in cycle)
                    told.setdefault(members, set()).add((victim(cycle).request_id, in_words(cycle)))
        assert all(len(said) == 1 for said in told.values()), "the same victim and words, whoever finds it"
        assert not set().union(*(a & b for a, b in combinations(told, 2))), "one job has one request, so one cycle"


def test_of_jobs_that_wait_for_several_things_a_probe_comes_back_just_where_there_is_a_way_back() -> None:
    targets = [few for size in range(3) for few in combinations(range(4), size)]
    for graph in product(targets, repeat=4):
        for job, its in enumerate(graph):
            for target in its:
                back = reaches(graph, target, job)
                cycles = probe(graph, job, target)
                assert bool(cycles) == back, (graph, job, target)
                assert {cycle[0].request_id for cycle in cycles} <= {f"{job}/{target}"}, "its own, not another one"


def test_a_cycle_is_made_of_edges_that_stand() -> None:
    graph = ((1,), (2, 3), (0,), (0,))
    for cycle in probe(graph, 0, 1):
        for one, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            assert int(one.waits[1:]) in graph[one.partition]
            assert following.holds == one.waits


def test_a_probe_that_runs_into_a_cycle_of_others_ends_there() -> None:
    path: Path = (link(0, 1, None),)
    for job, target in [(1, 2), (2, 1)]:
        path = follow(path, [link(job, target, path[-1].waits)]).paths[0]

    assert follow(path, [link(1, 2, "r1")]) == ([], [])


@pytest.mark.parametrize("length", [1, 2, HOPS_MAX, HOPS_MAX + 1])
def test_a_cycle_is_followed_up_to_a_length(length: int) -> None:
    graph = tuple(((job + 1) % length,) for job in range(length))

    assert len(probe(graph, 0, 1 % length, (1,) * length)) == (length <= HOPS_MAX)


def test_who_gives_way_was_tried_least_and_has_the_greatest_id() -> None:
    cycle = tuple(Link(f"{name}/{n}", name, n, 0, "x", "y") for name, n in [("b", 2), ("c", 1), ("é", 1), ("z", 3)])

    for turned in permutations(cycle):
        assert victim(turned).job_id == "é"


def test_a_cycle_in_words_and_in_its_event() -> None:
    a, b = Link("a/1/1", "a", 1, 0, "x", "y"), Link("b/1/1", "b", 1, 3, "y", "x")

    for cycle in [(a, b), (b, a)]:
        body = detected(cycle)
        assert body.reason == "deadlock: job a holds x and waits for y, job b holds y and waits for x"
        assert values.decode(body.cycle) == [
            {"job": "a", "holds": "x", "waits_for": "y"},
            {"job": "b", "holds": "y", "waits_for": "x"},
        ]


def test_a_path_is_the_same_behind_a_hop() -> None:
    path = (Link("a/1/1", "a", 1, 0, None, "x:é\n"), Link("b/1/1", "b", 7, 3, "x:é\n", "y"))

    assert decode_path(encode_path(path)) == path


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "0 links"),
        (b'[["a","a",1,0,null]]', "length"),
        (b'[["a","a","1",0,null,"x"]]', "Expected `int`"),
        (encode_path((Link("a", "a", 1, 0, None, "x"),) * (HOPS_MAX + 1)), "33 links"),
    ],
)
def test_bytes_that_are_no_path_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadPath, match=why):
        decode_path(data)
