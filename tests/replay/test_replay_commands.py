"""`replay`, `fork`, `diff` and `branch` as a person types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import FIXED, SHOP, Shop

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(shop: Shop, *words: str) -> list[str]:
    place = shop.deployment
    options = ["--log", place.log.url, "--namespace", "shop", "--state-dir", str(place.settings.state_dir)]
    return [sys.executable, "-m", "rewindq.tools.cli", *words, *options]


def rewindq(shop: Shop, *words: str) -> Ran:
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command(shop, *words), cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def test_replay_reads_and_runs_dry(shop: Shop) -> None:
    before = shop.production()
    read = rewindq(shop, "replay", "job-2", "--json")
    assert read.code == 0
    assert {"mode", "job_id", "attempt", "outcome", "failed_step", "divergences"} <= set(read.json)
    same = rewindq(shop, "replay", "job-2", "--mode", "dry-run", "--app", SHOP, "--json")
    assert (same.code, same.json["outcome"], same.json["divergences"]) == (0, "succeeded", [])
    other = rewindq(shop, "replay", "job-2", "--mode", "dry-run", "--app", FIXED, "--json")
    assert other.code == 3
    assert set(other.json["divergences"][0]) >= {"kind", "step", "occurrence", "expected", "got"}
    bypassed = rewindq(shop, "replay", "job-2", "--mode", "dry-run", "--app", SHOP, "--cache", "bypass", "--json")
    assert bypassed.code == 3
    assert shop.production() == before


def test_exit_statuses_name_what_is_wrong(shop: Shop) -> None:
    shop.order(4, trick="swallowed")
    shop.work()
    blocked = rewindq(shop, "replay", "job-4", "--mode", "dry-run", "--app", SHOP)
    assert blocked.code == 4 and "replay_shop.py" in blocked.out
    cases = [
        (5, "a job 'nobody'", ("replay", "nobody")),
        (5, "no attempt 7", ("replay", "job-1", "--attempt", "7")),
        (2, "no app to run", ("replay", "job-1", "--mode", "dry-run")),
        (2, "must be MODULE:ATTRIBUTE", ("replay", "job-1", "--mode", "dry-run", "--app", "nonsense")),
        (2, "no step 'nothing'", ("fork", "job-1", "--before", "nothing", "--app", SHOP)),
        (2, "is no position", ("fork", "job-1", "--at", "here", "--app", SHOP)),
        (2, "is no time", ("fork", "job-1", "--time", "yesterday", "--app", SHOP)),
        (2, "branch 'Bad Name'", ("fork", "job-1", "--name", "Bad Name", "--app", SHOP)),
        (4, "is not supported by this version", ("fork", "job-1", "--from", "other", "--app", SHOP)),
        (
            4,
            "no field 'nosuch'; its fields are: order_id, customer",
            ("fork", "job-1", "--set", "nosuch=1", "--app", SHOP),
        ),
        (5, "no branch 'none'", ("branch", "show", "none")),
        (5, "no branch 'none'", ("branch", "delete", "none", "--yes")),
        (5, "no branch 'none'", ("diff", "job-1", "--branch", "none")),
    ]
    for number, (code, text, words) in enumerate(cases):
        ran = rewindq(shop, *words, *(["--json"] if number % 2 else []))
        assert (words, ran.code, text in ran.err) == (words, code, True)
        if number % 2:
            assert text in ran.json["error"]["message"]
        else:
            assert ran.out == ""
    assert rewindq(shop, "fork", "job-1", "--set", "amount", "--app", SHOP).code == 2


def test_fork_diff_and_branch(shop: Shop) -> None:
    before = shop.production()
    words = ("fork", "job-3", "--before", "cache points/customer:c1", "--app", FIXED, "--name", "what-if")
    forked = rewindq(shop, *words, "--json")
    assert forked.code == 3
    assert set(forked.json) >= {"branch", "base", "outcome", "divergences", "diff"}
    diff = rewindq(shop, "diff", "job-3", "--branch", "what-if", "--json")
    assert (diff.code, diff.json) == (3, forked.json["diff"])
    assert set(diff.json) >= {"same", "outcome", "steps", "decisions", "effects", "state", "leases"}
    listed = rewindq(shop, "branch", "list", "--json")
    assert [one["name"] for one in listed.json["branches"]] == ["what-if"]
    assert set(listed.json["branches"][0]) >= {"name", "parent", "base", "mode", "origin", "topics", "group"}
    shown = rewindq(shop, "branch", "show", "what-if", "--json")
    assert shown.json["stands"]["offsets"]
    kept = rewindq(shop, "branch", "delete", "what-if")
    assert kept.code == 4 and "--yes" in kept.err
    assert rewindq(shop, "branch", "delete", "what-if", "--yes", "--json").code == 0
    assert rewindq(shop, "branch", "list", "--json").json == {"branches": []}
    assert shop.production() == before


def test_a_fork_of_a_secret_free_payload_change(shop: Shop) -> None:
    ran = rewindq(shop, "fork", "job-1", "--app", SHOP, "--set", "customer=c1", "--json")
    assert ran.code == 0 and ran.json["diff"]["same"]


def test_people_get_tables(shop: Shop) -> None:
    words = ("fork", "job-3", "--before", "cache points/customer:c1", "--app", FIXED, "--name", "what-if")
    forked = rewindq(shop, *words)
    assert "points" in forked.out and "50" in forked.out and "rewindq diff job-3" in forked.out
    assert "\x1b[" not in forked.out
    for words, text in (
        (("replay", "job-3"), "charge"),
        (("replay", "job-3", "--mode", "dry-run", "--app", FIXED), "missing_step"),
        (("branch", "list"), "what-if"),
        (("branch", "show", "what-if"), "shop.branch.what-if.domain"),
        (("branch", "delete", "what-if", "--yes"), "deleted branch what-if"),
        (("branch", "list"), "no branches"),
    ):
        ran = rewindq(shop, *words)
        assert text in ran.out, ran
        assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_dry_run_connects_to_nothing_and_starts_nothing(shop: Shop, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    words = command(shop, "replay", "job-2", "--mode", "dry-run", "--app", SHOP)
    traced = ["strace", "-f", "-e", "trace=connect,execve", "-o", str(calls), *words]
    assert subprocess.run(traced, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode == 0
    lines = calls.read_text().splitlines()
    assert len([line for line in lines if "execve(" in line]) == 1
    assert [line for line in lines if "connect(" in line] == []
