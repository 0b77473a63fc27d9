"""What must hold of global keys, checked without the fold: claims at their homes, calls where their jobs ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..core import events as e
from ..core.global_keys import is_global
from ..core.requests import CLAIMED, FREE

CLAIM, DONE, UNDONE, DOUBTED = "claimed", "succeeded", "failed", "in_doubt"
#: Reports a broken rule: kind, event number, job, what was found.
Broken = Callable[[str, int, str | None, str], None]


class Told(NamedTuple):
    """A claim that a job was told of: where it stands at the key's home."""

    position: str
    key: str
    job_id: str | None


class _Claim(NamedTuple):
    request_id: str
    job_id: str | None
    state: str
    doubted: bool


class KeyChecks:
    """The checks of one partition, for the keys that are at home on it and for its jobs' calls."""

    def __init__(self, partition: int, broken: Broken) -> None:
        self.partition = partition
        #: Requests that a home has settled.
        self.settled: set[str] = set()
        self.claimed: dict[int, tuple[str, str | None]] = {}
        self.told: list[Told] = []
        #: Of jobs of this partition: where each success stands, by key.
        self.successes: dict[str, list[int]] = {}
        self._broken = broken
        self._home: dict[str, _Claim] = {}
        self._granted: set[tuple[str | None, int, str]] = set()

    def take(self, record: e.EventRecord, body: e.Body, seq: int) -> None:
        """Checks the next event."""
        if isinstance(body, e.KeyClaimed):
            self._claimed(record, body, seq)
        elif isinstance(body, e.KeySettled):
            self._settled(record, body, seq)
        elif isinstance(body, e.ClaimAnswered):
            if body.outcome == CLAIMED:
                self._granted.add((record.job_id, record.attempt, body.key))
                self.told.append(Told(body.position or "", body.key, record.job_id))
        elif isinstance(body, e.EffectStarted | e.EffectSucceeded) and is_global(body.key):
            what = (record.job_id, record.attempt, body.key)
            if what not in self._granted:
                detail = f"{type(body).__name__} under {body.key!r}, which attempt {record.attempt} has not claimed"
                self._broken("unclaimed_call", seq, record.job_id, detail)
            if isinstance(body, e.EffectSucceeded):
                self.successes.setdefault(body.key, []).append(seq)

    def _claimed(self, record: e.EventRecord, body: e.KeyClaimed, seq: int) -> None:
        self.claimed[seq] = (body.key, record.job_id)
        known = self._home.get(body.key)
        self._home[body.key] = _Claim(body.request_id, record.job_id, CLAIM, body.doubt is not None)
        if known is None or known.state == UNDONE:
            return
        # What an attempt has left behind may be claimed by its job, like any call in doubt.
        if body.doubt is not None and (known.state == DOUBTED or known.job_id == record.job_id):
            return
        detail = f"{record.job_id} claims {body.key!r}, which is {known.state} by {known.job_id}"
        self._broken("second_claim", seq, record.job_id, detail)

    def _settled(self, record: e.EventRecord, body: e.KeySettled, seq: int) -> None:
        self.settled.add(body.request_id)
        known = self._home.get(body.key)
        by_person = body.command_id is not None
        allowed = (DOUBTED,) if by_person else (CLAIM, DOUBTED)
        if known is None or known.state not in allowed or known.request_id != body.request_id:
            found = "never claimed" if known is None else f"{known.state} under {known.request_id}"
            detail = f"{body.key!r} is settled for request {body.request_id}, and is {found}"
            self._broken("settlement", seq, record.job_id, detail)
        if known is not None:
            state = (DOUBTED if known.doubted else UNDONE) if body.outcome == FREE else body.outcome
            self._home[body.key] = known._replace(state=state)


def second_successes(found: Iterable[KeyChecks]) -> Iterator[tuple[int, str]]:
    """Keys with more than one recorded success, as (partition of the last one, what was found)."""
    places: dict[str, list[tuple[int, int]]] = {}
    for one in found:
        for key, seqs in one.successes.items():
            places.setdefault(key, []).extend((one.partition, seq) for seq in seqs)
    for key, at in sorted(places.items()):
        if len(at) > 1:
            where = ", ".join(f"p{partition}@{seq}" for partition, seq in at)
            yield at[-1][0], f"the global key {key!r} has {len(at)} recorded successes: {where}"


def unfounded_claims(found: dict[int, tuple[KeyChecks, int]]) -> Iterator[tuple[int, str]]:
    """Claims that jobs were told of and that their homes do not hold; `found` has the next event number, too.

    What was read too early is not compared.
    """
    for partition, (one, _) in found.items():
        for told in one.told:
            home, _, seq = told.position.removeprefix("p").partition("@")
            there = found.get(int(home)) if home.isdecimal() and seq.isdecimal() else None
            if there is not None and int(seq) >= there[1]:
                continue
            if there is None or there[0].claimed.get(int(seq)) != (told.key, told.job_id):
                detail = f"{told.job_id} was told that it has claimed {told.key!r} at {told.position or 'no position'}"
                yield partition, f"{detail}, which holds no such claim"
