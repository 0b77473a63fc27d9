"""`rewindq submit`: one job, many from a file, and lines that cannot be submitted."""

from __future__ import annotations

import json

import pytest
from tests.support.cli import Shell

from rewindq.engine.core.partitioner import partition_for


def lines(*objects: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def listed(shell: Shell) -> dict[str, dict[str, object]]:
    return {job["job_id"]: job for job in shell.run_inside("jobs", "list", "--json").json["jobs"]}


def test_one_job(shell: Shell) -> None:
    shown = shell.run("submit", "echo", "--payload", '{"text": "x"}', "--id", "j1", "--key", "k", "--json")
    assert shown.code == 0
    assert shown.json == {"jobs": [{"job_id": "j1", "partition": partition_for(b"k", 8), "offset": 0}]}
    told = shell.run_inside("submit", "echo", "--delay", "1h")
    assert "submitted (partition" in told.out
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
    assert "2 jobs were submitted before it" in message
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
