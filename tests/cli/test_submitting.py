"""`rewindq submit`: one job, many from a file, and lines that cannot be submitted."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
from tests.support.apps import app
from tests.support.cli import Shell
from tests.support.shop import Shop

from rewindq.engine.core.partitioner import partition_for


def lines(*objects: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def listed(shell: Shell) -> dict[str, dict[str, object]]:
    return {job["job_id"]: job for job in shell.run_inside("jobs", "list", "--json").json["jobs"]}


def test_one_job(shell: Shell) -> None:
    shown = shell.run("submit", "echo", "--payload", '{"text": "x"}', "--id", "j1", "--key", "k", "--json")
    assert shown.code == 0
    assert shown.json == {"jobs": [{"job_id": "j1", "partition": partition_for(b"k", 8), "offset": 0}]}
    told = shell.run_inside("submit", "echo", "--payload", "{}", "--delay", "1h")
    assert re.fullmatch(r"\S+ sent \(partition \d, offset [01]\)\n", told.out)
    assert {job["status"] for job in listed(shell).values()} == {"waiting", "delayed"}


def test_a_file_with_templates(shell: Shell) -> None:
    (shell.folder / "orders.jsonl").write_text(lines(*({"order": n, "customer": f"c{n % 3}"} for n in range(2345))))
    shown = shell.run(
        "submit", "echo", "--file", "orders.jsonl", "--id", "o-{order}", "--key", "customer:{customer}", "--json"
    )  # fmt: skip
    assert shown.code == 0
    assert shown.json["submitted"] == 2345
    assert (shown.json["first"]["job_id"], shown.json["last"]["job_id"]) == ("o-0", "o-2344")
    assert shown.json["first"]["partition"] == partition_for(b"customer:c0", 8)


def test_a_line_may_give_its_own_fields(shell: Shell) -> None:
    text = lines(
        {"payload": {"text": "a"}, "id": "own", "priority": 5, "delay": 60, "key": "k"},
        {"payload": {"text": "b"}, "note": "an unknown key makes the line itself the payload"},
    )
    assert (
        shell.run_inside("submit", "echo", "-", "--id", "given", "--json", stdin=text + "\n\n").json["submitted"] == 2
    )
    jobs = listed(shell)
    assert jobs["own"]["status"] == "delayed"
    assert jobs["own"]["partition"] == partition_for(b"k", 8)
    assert shell.run_inside("jobs", "show", "given", "--json").json["payload"]["note"].startswith("an unknown key")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"order": 3,}', "line 3: column 13"),
        ("[1]", "line 3: is no JSON object but list"),
        ('{"order": 1, "order": 2}', "line 3: column"),
        ('{"payload": 7}', "line 3: its payload is no JSON object"),
        ('{"payload": {"order": 3}, "priority": "high"}', "line 3: priority"),
        ('{"customer": 3}', "line 3: --id: field 'order' must be a text or whole number, it is missing"),
        ('{"order": true}', "line 3: --id: field 'order' must be a text or whole number, it is True"),
    ],
)
def test_a_bad_line_is_named_and_what_stands_before_it_stays(shell: Shell, line: str, reason: str) -> None:
    text = lines({"order": 1}, {"order": 2}) + line + "\n" + lines({"order": 4})
    shown = shell.run_inside("submit", "echo", "-", "--id", "o-{order}", "--json", stdin=text)
    assert shown.code == 1
    message = shown.json["error"]["message"]
    assert reason in message
    assert "2 jobs were sent before it" in message
    assert "the same command is safe to repeat" in message
    assert listed(shell).keys() == {"o-1", "o-2"}


def test_a_file_that_is_not_there(shell: Shell) -> None:
    shown = shell.run_inside("submit", "echo", "--file", "none.jsonl")
    assert shown.code == 1
    assert "none.jsonl cannot be read" in shown.err


@pytest.mark.parametrize("template", ["{order", "{order:>5}", "{a.b}", "{}"])
def test_a_template_that_is_none_is_refused(shell: Shell, template: str) -> None:
    shown = shell.run_inside("submit", "echo", "--payload", '{"order": 1}', "--id", template)
    assert shown.code == 2
    assert "--id" in shown.err


def test_an_apps_models_are_asked_before_anything_is_sent(shell: Shell) -> None:
    shown = shell.run_inside("submit", "deposit", "--payload", '{"account": "a"}', "--app", "tests.support.apps:app")
    assert shown.code == 2
    assert "amount: Field required" in shown.err
    assert shell.run_inside("jobs", "list", "--json").json["jobs"] == []


def test_nothing_is_sent_unless_a_payload_is_given(shell: Shell) -> None:
    shown = shell.run_inside("submit", "echo", "--json")
    assert shown.code == 2
    assert "for example: rewindq submit" in shown.json["error"]["message"]
    assert not (shell.folder / ".rewindq").exists()


def test_a_terminal_is_not_waited_for(shell: Shell) -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            shell.command("submit", "echo", "-", "--json"),
            cwd=shell.folder,
            env=shell.environment,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert "which is a terminal" in json.loads(done.stdout)["error"]["message"]


def test_an_id_that_belongs_to_other_content_is_told_while_waiting(own_bank: Shell) -> None:
    other = own_bank.run_inside("submit", "echo", "--id", "e1", "--payload", '{"text": "other"}', "--wait", "--json")
    assert other.code == 1
    (job,) = other.json["jobs"]
    assert (job["id_conflict"], job["result"]) == (True, {"text": "hello"})
    assert "belongs to an earlier job with other content (it is succeeded)" in other.err
    delayed = own_bank.run_inside("submit", "deposit", "--id", "e2", "--payload", "{}", "--wait")
    assert delayed.code == 1, "the earlier job's end is not waited for"
    assert delayed.out.startswith("e2 sent (")
    same = own_bank.run_inside("submit", "echo", "--id", "e1", "--payload", '{"text": "hello"}', "--wait", "--json")
    assert (same.code, same.json["jobs"][0]["id_conflict"]) == (0, False)
    lines_of = lines({"payload": {"text": "hello"}, "id": "e1"}, {"payload": {"text": "no"}, "id": "e1"})
    many = own_bank.run_inside("submit", "echo", "-", "--wait", "--json", stdin=lines_of)
    assert (many.code, many.json["succeeded"]) == (1, 1)
    assert [job["id_conflict"] for job in many.json["not_succeeded"]] == [True]


def test_jobs_show_tells_what_was_submitted_again(shell: Shell) -> None:
    shop = Shop(shell.folder / ".rewindq", app)
    for text in ("hello", "hello", "other"):
        shop.submit("echo", {"text": text}, "e1")
    shop.run()
    shop.deployment.close()
    found = shell.run_inside("jobs", "show", "e1", "--json").json["duplicates"]
    assert [one["same"] for one in found] == [True, False]
    told = " ".join(shell.run_inside("jobs", "show", "e1").out.split())
    assert f"submitted again 2 times, with other content that was never run at {found[1]['position']}" in told
