"""`verify` on reverts: what the core decides passes, and whatever differs from it in any way does not."""

from __future__ import annotations

from typing import Any

import pytest
import tests.support.hypothesis_profile  # noqa: F401 - puts the profile in force
from hypothesis import given
from msgspec.structs import replace
from tests.support.reverting import KEY, STEPS, Aggregate, played

from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.ports.store import Family, Put
from rewindq.engine.runtime.revert_checks import RevertChecks
from rewindq.engine.store.memory import MemoryStore


def broken(one: Aggregate) -> list[str]:
    """What the checks say of an aggregate's history."""
    found: list[str] = []
    checks = RevertChecks(lambda kind, seq, job_id, detail: found.append(detail))
    checks._keys.add(KEY)
    store = MemoryStore()
    store.write([Put(Family.AGGREGATES, KEY.encode(), s.encode_state(one), seq) for seq, one in one.versions])
    checks.compare(store)
    return found


@given(STEPS)
def test_what_is_decided_passes(steps: list[Any]) -> None:
    one = played(steps)
    one.revert("bad")
    assert broken(one) == []


def tampered(one: Aggregate, **fields: Any) -> Aggregate:
    """The newest version brings back other values."""
    seq, version = one.versions[-1]
    one.versions[-1] = (seq, replace(version, changes=values.encode(fields)))
    return one


def test_another_value_is_found() -> None:
    one = Aggregate()
    one.write("before", a=1)
    one.write("bad", a=2)
    one.revert("bad")
    assert broken(one) == []
    assert broken(tampered(one, a=7)) == [f"{KEY} a: it was given '7', and had '1' before the job"]


def test_a_field_of_somebody_else_is_found() -> None:
    one = Aggregate()
    one.write("bad", a=1, b=1)
    one.write("later", b=2)
    one.revert("bad")
    assert broken(tampered(one, b=1)) == [f"{KEY} b: it was reverted, although somebody else has written it since"]


def test_a_field_that_the_job_has_not_written_is_found() -> None:
    one = Aggregate()
    one.write("later", b=2)
    one.write("bad", a=1)
    one.revert("bad")
    assert broken(tampered(one, b=2)) == [f"{KEY} b: it was reverted, although somebody else has written it since"]


def test_a_write_between_the_jobs_own_is_found() -> None:
    one = Aggregate()
    one.write("bad", a=1, b=1)
    one.write("good", a=2)
    one.write("bad", a=3)
    one.revert("bad")
    assert broken(tampered(one, a=2)) == [f"{KEY} a: it was reverted, although somebody else has written it since"]


DECIDED = e.RevertDecided("r", "ann", "c", None, 1, b"[]", 0)
VERSION = e.StateReverted(1, b"{}", (), "r", "ann", "c")


@pytest.mark.parametrize(
    ("events", "ended", "named"),
    [
        ([DECIDED, VERSION], True, []),
        ([VERSION], True, ["no decision says so"]),
        ([DECIDED], True, ["1 versions of order:1 are missing"]),
        ([DECIDED, VERSION, VERSION], True, ["no decision says so"]),
        ([DECIDED, replace(VERSION, command_id="d")], True, ["no decision says so"]),
        ([DECIDED, VERSION, DECIDED, VERSION], True, ["a second time"]),
        ([DECIDED, VERSION], False, ["had not ended"]),
    ],
)
def test_versions_and_decisions_go_together(events: list[e.Body], ended: bool, named: list[str]) -> None:
    found: list[str] = []
    checks = RevertChecks(lambda kind, seq, job_id, detail: found.append(detail))
    for seq, body in enumerate(events):
        checks.take("bad", e.Event(body, resource=KEY), seq, ended)
    checks.end(len(events))
    assert len(found) == len(named)
    assert all(text in detail for text, detail in zip(named, found, strict=True))
