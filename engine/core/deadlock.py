"""Jobs that wait for each other, found by edge chasing (Chandy, Misra, Haas 1983: Distributed Deadlock Detection).

A request that has waited for a while sends a probe along "waits for a resource that is held by a job which waits for":
from the home of the resource to the partition of its holder, and on from there for each request that the holder itself
waits with. The edges are walked where they are known, and only while they stand. A probe that comes back to the very
request that sent it proves a cycle; one that comes to anything else that it has seen, or too far, is dropped.

What is walked are requests, not jobs: a handler may wait for several at once, in tasks side by side, and one of them
keeps a resource from others only if it was asked for while that was held. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from . import events as e
from . import values

#: Longest path that is followed. A longer cycle is left to the bound of its waits.
HOPS_MAX = 32
#: Stages of a probe: where it has come to.
HOME, HOLDER, VICTIM = "home", "holder", "victim"


class Link(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits: it asks for `waits` in an attempt of a job of `partition`.

    `holds` is what the job holds until it gets it, and what the one before in the path waits for; None: the first.
    """

    request_id: str
    job_id: str
    attempt: int
    partition: int
    holds: str | None
    waits: str


Path = tuple[Link, ...]
_DECODER = msgspec.json.Decoder(Path)


class BadPath(ValueError):
    """The bytes are no path of a probe; says why."""


def encode_path(path: Path) -> bytes:
    """A path as it travels."""
    return msgspec.json.encode(path)


def decode_path(data: bytes) -> Path:
    """The path in a probe, of one link at least. Raises BadPath."""
    try:
        path = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise BadPath(str(error)) from error
    if not 1 <= len(path) <= HOPS_MAX:
        raise BadPath(f"it has {len(path)} links, and a path has from 1 to {HOPS_MAX}")
    return path


class Followed(NamedTuple):
    """Where a probe leads: cycles that it has closed, and paths to go on with."""

    cycles: list[Path]
    paths: list[Path]


def follow(path: Path, waiting: Iterable[Link]) -> Followed:
    """Goes on to what the holder of the path's end itself waits with, while it holds that; none: it does not wait."""
    cycles, paths = [], []
    seen = {link.request_id for link in path}
    for link in waiting:
        if link.request_id == path[0].request_id:
            cycles.append((link, *path[1:]))
        elif link.request_id not in seen and len(path) < HOPS_MAX:
            paths.append((*path, link))
    return Followed(cycles, paths)


def victim(cycle: Path) -> Link:
    """The one that gives way, whoever has found the cycle: of those in the lowest attempt, the greatest job id.

    So a job that has given way is in a higher attempt than who comes new, and does not give way for ever; and no two
    clocks are compared.
    """
    return max(cycle, key=lambda link: (-link.attempt, link.job_id.encode(), link.request_id))


def in_words(cycle: Path) -> str:
    """The cycle for people, the same whoever has found it."""
    told = (f"job {link.job_id} holds {link.holds} and waits for {link.waits}" for link in _from_first(cycle))
    return f"deadlock: {', '.join(told)}"


def detected(cycle: Path) -> e.DeadlockDetected:
    """The event that ends a cycle, on the trace of its victim."""
    told = [{"job": link.job_id, "holds": link.holds, "waits_for": link.waits} for link in _from_first(cycle)]
    return e.DeadlockDetected(in_words(cycle), values.encode(told))


def _from_first(cycle: Path) -> Path:
    at = min(range(len(cycle)), key=lambda place: (cycle[place].job_id.encode(), cycle[place].request_id))
    return cycle[at:] + cycle[:at]
