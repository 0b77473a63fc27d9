"""The README's table of promises names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    table = text.split("| promised | by | shown in |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)[1:]
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in rows]

    assert len(named) >= 10
    assert all(named)
    assert [path for paths in named for path in paths if not (ROOT / path).exists()] == []
