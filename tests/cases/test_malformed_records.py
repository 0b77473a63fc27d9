"""Whatever bytes stand on an input topic, each bad record is parked once, with its place and bytes, and the rest runs.

The guards: `Intake._take` (`worker/intake.py`) decodes inside of its own bounds and parks under an id made of the
record's place, so that a rewind finds the entry there; `names_refusal` and `payload_refusal` (`core/inputs.py`) refuse
what decodes and cannot be meant. Single kinds: `tests/worker/test_life_of_a_job.py`, `tests/cli/test_odd_records.py`.
"""

from __future__ import annotations

import gzip
import random

from pydantic import BaseModel
from tests.support.case_shops import MakeShop, make_shop
from tests.support.shop import Shop

from rewindq import App, Context
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.ports.log import Append
from rewindq.processors.worker.intake import ORIGINAL_MAX

__all__ = ["make_shop"]
GOOD = 25
KNOWN = values.encode({"n": 1})


class Item(BaseModel):
    """A payload that would take more than it should."""

    n: int
    more: object = None


def _app() -> tuple[App, list[int]]:
    app, ran = App("odd"), []

    @app.job()
    async def work(ctx: Context, job: Item) -> None:
        ran.append(job.n)

    return app, ran


def _submission(shop: Shop, job_id: str | None, payload: bytes | None = KNOWN, **changed: object) -> bytes:
    fields: dict[str, object] = {"type": "work", "payload": payload, "payload_ref": None}
    fields = {**fields, "digest": values.digest(payload or b""), **changed}
    at = int(str(fields.pop("at", shop.deployment.clock.now_us())))
    event = e.Event(e.JobSubmitted(**fields))  # type: ignore[arg-type]
    return shop.deployment.codec.encode(e.EventRecord(e.UNNUMBERED, 0, at, 0, "odd", job_id, 0, (event,)))


def _places(shop: Shop) -> dict[str, bytes | None]:
    """Records that cannot be jobs: their entries are named by their places. By what they should be parked for."""
    good = _submission(shop, "cut")
    at = good.index(b"work")
    body = e.Event(e.JobSucceeded(None, None, 0))
    codec = shop.deployment.codec
    return {
        "the record is empty": b"",
        "record is empty": None,
        "the bytes begin with fffe": b"\xff\xfe\x00",
        "the bytes begin with 1f8b": gzip.compress(b"\0" * 20_000_000),
        "does not fit its schema": good[:-3],
        "bytes are left over": good + b"\0\0",
        "no released schema": good[:2] + b"\0" * 8 + good[10:],
        # A text that claims to have a terabyte, and one that is no UTF-8.
        "body does not fit": good[: at - 1] + b"\x80\x80\x80\x80\x80\x80\x01" + good[at:],
        "its schema": good[:at] + b"\xff\xfe\xfd\xfc" + good[at + 4 :],
        "holds JobSucceeded": codec.encode(e.EventRecord(e.UNNUMBERED, 0, 1, 0, "odd", "ended", 0, (body,))),
        "holds NoneType": codec.encode(e.EventRecord(e.UNNUMBERED, 0, 1, 0, "odd", "none", 0, ())),
        "no usable job id: None": _submission(shop, None),
        "no usable job id": _submission(shop, "nul\0id"),
        "its type ' '": _submission(shop, "blank-type", type=" "),
        "its type has 5000 characters": _submission(shop, "long-type", type="t" * 5000),
        "its key 'a\\x00b'": _submission(shop, "nul-key", key="a\0b"),
        "its key has 65536 characters": _submission(shop, "long-key", key="k" * 65536),
    }


def _jobs(shop: Shop) -> dict[str, tuple[bytes, str]]:
    """Records of jobs that cannot run: by id, with why."""
    payloads = {
        "deep": (b'{"n":1,"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested"),
        "deeper": (b'{"more":' + b"[" * 65 + b"]" * 65 + b',"n":1}', "nested over 64 levels"),
        "doubled": (b'{"n":1,"n":2}', "stands twice"),
        "not-a-number": (b'{"n":1,"more":NaN}', "NaN is no JSON number"),
        "infinite": (b'{"n":1,"more":1e400}', "too large for a float"),
        "surrogate": (b'{"n":1,"more":"\\ud800"}', "lone surrogate"),
        "not-text": (b'{"n":1,"more":"\xff"}', "not UTF-8"),
        "missing": (b"{}", "n: Field required"),
        "no-object": (b"[1]", "payload"),
    }
    found = {job_id: (_submission(shop, job_id, payload), why) for job_id, (payload, why) in payloads.items()}
    found["digest"] = (_submission(shop, "digest", digest=values.digest(b"other")), "is not that of its payload")
    found["reference"] = (
        _submission(shop, "reference", None, payload_ref="sha256:../../etc", digest="x"),
        "not a blob reference",
    )
    found["unknown"] = (_submission(shop, "unknown", type="nobody"), "nobody")
    found["past"] = (_submission(shop, "past", due=-1), "due time")
    found["far"] = (_submission(shop, "far", due=2**62), "due time")
    return found


def _mixed(shop: Shop, records: list[bytes | None]) -> dict[bytes | None, int]:
    """Appends the records among good ones; the offset of each."""
    mixed: list[bytes | None] = [*records]
    for n in range(GOOD):
        mixed.append(_submission(shop, f"good-{n}", values.encode({"n": n}), at=[-(2**62), 0, 2**62][n % 3]))
    random.Random(7).shuffle(mixed)
    producer, topic = shop.deployment.log.producer(), shop.topics.jobs
    odd = {"key": b"\xff\xfe" * 32_000, "headers": (("h", b"\xff"), ("h", b""), ("h", b"\0" * 1000))}
    producer.append(
        [
            Append(topic, 0, odd["key"] if n % 2 else None, value, n % 3, odd["headers"] if n % 3 else ())  # type: ignore[arg-type]
            for n, value in enumerate(mixed)
        ]
    )
    producer.close()
    return {value: offset for offset, value in enumerate(mixed)}


def _bodies(shop: Shop) -> dict[str, list[e.Body]]:
    """All bodies by job, in one reading of the log."""
    found: dict[str, list[e.Body]] = {}
    for record in shop.records():
        found.setdefault(record.job_id or "", []).extend(event.body for event in record.events)
    return found


def _entry(bodies: list[e.Body]) -> e.MovedToInvestigation:
    (entry,) = [body for body in bodies if isinstance(body, e.MovedToInvestigation)]
    return entry


def _blob(shop: Shop, parked: e.MovedToInvestigation) -> bytes:
    assert shop.deployment.blobs is not None and parked.original_ref is not None
    return shop.deployment.blobs.get(parked.original_ref)


def test_each_bad_record_is_parked_once_and_the_good_ones_run(make_shop: MakeShop) -> None:
    app, ran = _app()
    shop = make_shop(app, unknown_type_wait=0)
    places, jobs = _places(shop), _jobs(shop)
    offsets = _mixed(shop, [*places.values(), *(record for record, _ in jobs.values())])
    shop.run()
    assert sorted(ran) == list(range(GOOD))
    before = _bodies(shop)
    for why, record in places.items():
        parked = _entry(before[f"{shop.topics.jobs}-p0-{offsets[record]}"])
        assert why in parked.reason, (why, parked.reason)
        assert f"partition 0 offset {offsets[record]}" in parked.reason
        large = len(record or b"") > ORIGINAL_MAX
        assert (_blob(shop, parked) if large else parked.original) == (record or b"")
        assert len(parked.original or b"") <= ORIGINAL_MAX and len(parked.reason) < 3000
    for job_id, (_, why) in jobs.items():
        assert why in _entry(before[job_id]).reason, (job_id, _entry(before[job_id]).reason)
    committed = {group.name: group.offsets for group in shop.deployment.log.groups(shop.deployment.group)}
    assert committed[shop.deployment.group][shop.topics.jobs, 0] == shop.deployment.log.bounds(shop.topics.jobs, 0)[1]

    shop.deployment.log.set_offsets(shop.deployment.group, {(shop.topics.jobs, 0): 0, (shop.topics.commands, 0): 0})
    shop.run()
    assert len(ran) == GOOD
    after = _bodies(shop)
    for job_id, bodies in before.items():
        same = [body for body in after[job_id] if not isinstance(body, e.SubmissionDuplicated | e.PartitionTaken)]
        assert same == [body for body in bodies if not isinstance(body, e.PartitionTaken)], job_id


def test_bad_commands_are_parked_too(make_shop: MakeShop) -> None:
    app, ran = _app()
    shop = make_shop(app)
    values_there = [b"", None, b"\xff\xfe\x00", b"\0\0\0\0\x09abc", _submission(shop, "wrong-topic")]
    for value in values_there:
        shop.append(shop.topics.commands, value)
    shop.submit("work", {"n": 1}, "good")
    shop.run()
    assert ran == [1]
    bodies = _bodies(shop)
    for offset, value in enumerate(values_there):
        parked = _entry(bodies[f"{shop.topics.commands}-p0-{offset}"])
        assert f"offset {offset}" in parked.reason and parked.original == (value or b"")
