"""Records that no client of ours writes are shown, bounded, and hide nothing beside them."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from tests.support.apps import Text, app
from tests.support.cli import Shell
from tests.support.shop import Shop

from rewindq import App, Context, FailureClass
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.refused import DEPTH_MAX
from rewindq.engine.runtime.show import RAW_MAX, payload_shown
from rewindq.tools.cli.replay_tables import _table
from rewindq.tools.cli.tables import VALUE_MAX

DEEP = b"[" * 5000 + b"]" * 5000
ODD_TIME = 2**62


def test_a_payload_that_nests_without_end(shell: Shell) -> None:
    shop = Shop(shell.folder / ".rewindq", app)
    shop.submit("echo", DEEP, "deep")
    pending = shell.run_inside("jobs", "show", "deep", "--json").json
    shop.run()
    shop.deployment.close()
    parked = shell.run_inside("jobs", "show", "deep", "--json").json
    assert (pending["status"], parked["status"]) == ("waiting", "investigation")
    assert pending["payload"] == parked["payload"] == {"raw": "[" * RAW_MAX, "bytes": len(DEEP)}
    bodies = [event["body"] for event in shell.run_inside("trace", "deep", "--json").json["events"]]
    assert bodies[0]["payload"] == parked["payload"]
    for arguments in (("jobs", "show", "deep"), ("trace", "deep"), ("replay", "deep")):
        assert len(shell.run_inside(*arguments).out) < 10 * RAW_MAX


@pytest.mark.parametrize(
    ("data", "shown"), [(b"{", {"raw": "{", "bytes": 1}), (b"\xff", {"base64": "/w==", "bytes": 1})]
)
def test_a_payload_that_is_no_json(data: bytes, shown: object) -> None:
    assert payload_shown(data, ()) == shown


def test_a_payload_that_cannot_be_masked_keeps_its_secrets() -> None:
    data = b'{"pin": "4711"'
    assert payload_shown(data, ("pin",)) == {"bytes": len(data)}


def test_the_deepest_payload_that_is_shown_as_json() -> None:
    deepest = json.loads("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    assert payload_shown(values.encode(deepest), ()) == deepest
    assert payload_shown(json.dumps([deepest]).encode(), ()).keys() == {"raw", "bytes"}


def test_a_time_that_no_calendar_has(shell: Shell) -> None:
    shop = Shop(shell.folder / ".rewindq", app)
    shop.submit("echo", {"text": "x"}, "sane")
    payload = values.encode({"text": "x"})
    body = e.JobSubmitted("echo", payload, None, values.digest(payload))
    record = e.EventRecord(e.UNNUMBERED, 0, ODD_TIME, 0, "test", "odd", 0, (e.Event(body),))
    shop.append(shop.topics.jobs, shop.deployment.codec.encode(record), "odd")
    shop.deployment.close()
    jobs = {job["job_id"]: job for job in shell.run_inside("jobs", "list", "--json").json["jobs"]}
    assert jobs.keys() == {"sane", "odd"}
    assert jobs["odd"]["submitted_at"] == f"{ODD_TIME}us"
    assert f"{ODD_TIME}us  waiting" in shell.run_inside("jobs", "list").out
    assert f"{ODD_TIME}us" in shell.run_inside("jobs", "show", "odd").out
    assert f"{ODD_TIME}us" in shell.run_inside("trace", "odd").out


def test_what_went_wrong_is_whole_in_detail_and_cut_in_lists(shell: Shell) -> None:
    reason = " ".join(f"word{n}" for n in range(100))
    failing = App("failing")

    @failing.job()
    async def fail(ctx: Context, job: Text) -> None:
        raise ValueError(reason)

    failing.classify(ValueError, FailureClass.VALIDATION)
    shop = Shop(shell.folder / ".rewindq", failing)
    shop.submit("fail", {}, "f")
    shop.run()
    shop.deployment.close()
    for arguments in (("jobs", "show", "f"), ("trace", "f"), ("replay", "f")):
        told = shell.run_inside(*arguments).out
        assert all(word in told.split() for word in reason.split()[1:-1]), arguments
        assert "…" not in told
        assert max(map(len, told.splitlines())) <= 80
    assert "…" in shell.run_inside("jobs", "list").out
    assert "error=[app rule for builtins.ValueError]" in " ".join(shell.run_inside("trace", "f").out.split())


def test_an_attempts_reason_is_whole_in_a_replays_tables() -> None:
    reason = " ".join(f"word{n}" for n in range(100))
    attempt = {"attempt": 1, "outcome": "failed", "failed_step": None, "reason": reason}
    table = _table("attempts", [attempt], {"n": "attempt", "reason": "reason"})
    told = io.StringIO()
    Console(file=told, width=60).print(table)
    assert {"word50", "word99"} <= set(told.getvalue().split())


def test_long_values_are_cut_for_people_and_whole_for_programs(shell: Shell) -> None:
    long, app = "x" * 5 * VALUE_MAX, App("long")

    @app.job()
    async def keep(ctx: Context, job: Text) -> str:
        await ctx.save("note", "n", {"text": job.text}, expected=0)
        return job.text

    shop = Shop(shell.folder / ".rewindq", app)
    shop.submit("keep", {"text": long}, "j")
    shop.run()
    shop.deployment.close()
    for arguments, values_shown in ((("jobs", "show", "j"), 2), (("state", "note/n"), 1)):
        shown = shell.run_inside(*arguments).out
        assert len(shown) < values_shown * 1.1 * VALUE_MAX + 1000
        assert shown.count("--json shows them") == values_shown
        assert long in json.dumps(shell.run_inside(*arguments, "--json").json)
    history = shell.run_inside("state", "note/n", "--history").out
    assert "text='xxx" in history
    assert len(history) < VALUE_MAX
