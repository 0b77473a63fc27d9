"""Texts with NUL, surrogates and controls come back exactly or are refused with their path, and steer no terminal.

The guards: `values.encode` and `name_refusal` (`core/sizes.py`, asked by `Context._step` and for keys) refuse what
UTF-8 cannot hold; `JobType._apply` (`runtime/app.py`), `aggregate_key` and `valid_job_id` refuse NUL in names;
`bounded` (`core/texts.py`) escapes it in messages; `VisibleConsole` and `escaped` (`tools/cli/visible.py`) make
controls visible.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.cli import Shell
from tests.support.shop import Shop

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.retry import FailureClass
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.submitting import SubmissionRefused
from rewindq.tools.cli.output import tell
from rewindq.tools.cli.visible import visible

KEPT = [
    "a\0b",
    "\0",
    "\ufffe\uffff",
    "\ufeffmark",
    "\u202eright to left\u202c",
    "\U0001f468\u200d\U0001f469\U00020000",
    "e" + "\u0301" * 200,
    "line\r\nline\u2028line\x85",
    "\x1b[31m\x1b]0;title\x07\x9b31m",
    "",
]
NO_TEXT = ["\ud800", "ok\udfff", "\udc00\ud800"]
SOON = Retry(max_attempts=3, base=0.01)


class Text(BaseModel):
    """A payload of text."""

    text: str = ""
    table: dict[str, str] = {}


def test_what_text_is_comes_back_exactly_from_everywhere(tmp_path: Path) -> None:
    app = App("t")

    @app.job(retry=SOON)
    async def keep(ctx: Context, job: Text) -> dict[str, str]:
        table = await ctx.effect("call", lambda found: found, job.table, key="k")
        await ctx.save("thing", "1", table, expected=0)
        for name in job.table:
            ctx.note(name, found=name)
        return dict((await ctx.load("thing", "1")).data)

    shop = Shop(tmp_path / ".rewindq", app)
    table = {text: text for text in KEPT}
    with Client(deployment=shop.deployment, app=app) as client:
        client.submit("keep", Text(table=table), job_id="j")
        shop.run()
        assert client.result("j") == table
    assert shop.aggregate("thing:1").data == table
    notes = [event.step for r in shop.records("j") for event in r.events if isinstance(event.body, e.NoteRecorded)]
    assert notes == list(values.decode(values.encode(table)))
    shop.deployment.close()
    shown = json.loads(Shell(tmp_path).run_inside("jobs", "show", "j", "--json").out)
    assert shown["payload"]["table"] == shown["result"] == table


@pytest.mark.parametrize("text", NO_TEXT, ids=ascii)
def test_what_is_no_text_is_refused_at_submission_with_its_path(tmp_path: Path, text: str) -> None:
    shop = Shop(tmp_path, App("t"))
    given: list[tuple[dict[str, Any], str]] = [
        ({"payload": {"a": [text]}}, "/a/0"),
        ({"payload": {text: 1}}, "surrogate"),
        ({"payload": Text.model_construct(text=text)}, "/text"),
        ({"payload": {}, "key": text}, "key"),
        ({"payload": {}, "job_id": text}, "job id"),
        ({"payload": {}, "type": text}, "type"),
    ]
    with Client(deployment=shop.deployment) as client:
        for fields, named in given:
            with pytest.raises(SubmissionRefused, match=named):
                client.submit(**{"type": "keep", **fields})
    assert shop.deployment.log.bounds(shop.topics.jobs, 0) == (0, 0)


def _places(ctx: Context, text: str) -> dict[str, Any]:
    return {
        "result": lambda: {"found": text},
        "model": lambda: Text.model_construct(text=text),
        "bytes": lambda: _Raw(raw=b"\xff"),
        "note": lambda: ctx.note("n", found=text),
        "step": lambda: ctx.note(text),
        "decision": lambda: ctx.decide("d", text),
        "field": lambda: ctx.save("thing", "1", {"found": text}, expected=0),
        "field name": lambda: ctx.save("thing", "1", {text: 1}, expected=0),
        "aggregate": lambda: ctx.load("thing", text),
        "effect key": lambda: ctx.effect("other", str, key=text),
        "argument": lambda: ctx.effect("other", str, text, key="k"),
        "lease": lambda: ctx.lease(text).__aenter__(),
        "child": lambda: ctx.enqueue("work", Text.model_construct(text=text)),
        "child key": lambda: ctx.enqueue("work", Text(), key=text),
        "child id": lambda: ctx.enqueue("work", Text(), job_id=text),
    }


class _Raw(BaseModel):
    raw: bytes


def test_what_is_no_text_fails_its_own_job_once_and_effects_stand(tmp_path: Path) -> None:
    """One bad one among its siblings, for each place where a handler can give a text."""
    app, calls = App("t"), []

    @app.job(retry=SOON)
    async def work(ctx: Context, job: Text) -> Any:
        await ctx.effect("call", calls.append, job.text, key="k")
        if not job.text:
            return None
        done = _places(ctx, "\ud800")[job.text]()
        return await done if hasattr(done, "__await__") else done

    shop = Shop(tmp_path, app)
    places = list(_places(None, ""))  # type: ignore[arg-type]
    for number, place in enumerate(places):
        shop.submit("work", {"text": place}, f"bad-{number}")
        shop.submit("work", {}, f"good-{number}")
    shop.run()
    for number, place in enumerate(places):
        bad, good = shop.job(f"bad-{number}"), shop.job(f"good-{number}")
        assert (good.status, good.attempt) == (s.SUCCEEDED, 1)
        assert (bad.status, bad.attempt) == (s.INVESTIGATION, 1), place
        assert bad.failure is not None and bad.failure.failure_class == FailureClass.VALIDATION, place
        assert calls.count(place) == 1
    assert {record.epoch for record in shop.records()} == {1}


def test_a_message_that_is_no_text_is_kept_escaped(tmp_path: Path) -> None:
    app, calls = App("t"), []

    @app.job(retry=Retry(max_attempts=2, base=0.01))
    async def work(ctx: Context, job: Text) -> None:
        await ctx.effect("call", calls.append, 1, key="k")
        raise ValueError("no \ud800 text")

    shop = Shop(tmp_path, app)
    shop.submit("work", {}, "j")
    shop.run()
    job = shop.job("j")
    assert (job.status, job.attempt, calls) == (s.INVESTIGATION, 2, [1])
    assert job.failure is not None and r"no \ud800 text" in job.failure.reason


def test_names_with_nul_are_refused_and_never_another_name(tmp_path: Path) -> None:
    app, ran = App("t"), []

    @app.job(resource="r:{text}", retry=SOON)
    async def work(ctx: Context, job: Text) -> None:
        ran.append(job.text)

    shop = Shop(tmp_path, app)
    for number, text in enumerate(["a", "a\0", "a\0b", "\0"]):
        shop.submit("work", {"text": text}, f"j{number}")
    shop.run()
    assert ran == ["a"]
    for number in (1, 2, 3):
        failure = shop.job(f"j{number}").failure
        assert failure is not None and "without NUL" in failure.reason
    assert [r.resource for r in shop.records() if r.resource] == ["r:a"] * len(
        [r for r in shop.records("j0") if r.resource]
    )


def test_no_text_of_a_job_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "".join(text for text in KEPT if text)
    name = odd.replace("\0", "")
    app = App("t")

    @app.job(retry=Retry(max_attempts=1))
    async def work(ctx: Context, job: Text) -> None:
        ctx.note(odd, found=odd)
        await ctx.effect(name, lambda: odd, key=odd)
        await ctx.save("thing", name, {odd: odd}, expected=0)
        raise ValueError(odd)

    shop = Shop(tmp_path / ".rewindq", app)
    shop.submit("work", {"text": odd}, "j")
    shop.run()
    shop.deployment.close()
    shell = Shell(tmp_path)
    for arguments in (
        ("jobs", "list"),
        ("jobs", "show", "j"),
        ("trace", "j"),
        ("replay", "j"),
        ("effects", "list"),
        ("state", f"thing/{name}", "--history"),
        ("jobs", "show", odd),
    ):
        for form in ((), ("--json",)):
            done = shell.run_inside(*arguments, *form)
            assert visible(done.out + done.err) == done.out + done.err, (arguments, form)
    assert "␛" in shell.run_inside("trace", "j").out
    tell(f"error: no job {odd}")
    told = capsys.readouterr().err
    assert visible(told) == told and "␛" in told
    assert json.loads(shell.run_inside("state", f"thing/{name}", "--json").out)["data"] == {odd: odd}
