"""What the README shows is true: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest
import typer.main
from tests.support.cli import Shell

from rewindq import App
from rewindq.tools.cli import build

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/handlers.md",
    "docs/operating.md",
    "tools/demo/README.md",
)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def block(holding: str) -> str:
    """The README's block of code that holds a text."""
    blocks = re.findall(r"\n\n((?:(?:    .*)?\n)+)", read("README.md"))
    return textwrap.dedent(next(one for one in blocks if holding in one)).strip("\n")


def test_the_handler_is_an_app_as_it_stands() -> None:
    names: dict[str, object] = {}
    exec(block("@app.job"), names)
    app = names["app"]
    assert isinstance(app, App) and set(app.types) == {"charge_order"}


@pytest.mark.process
def test_the_handler_runs_as_its_commands_say(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("@app.job"))
    shell = Shell(tmp_path)
    ended = {}
    for line in block("rewindq submit charge_order").splitlines():
        words = shlex.split(line)
        assert words[0] == "rewindq"
        ended[words[1]] = shell.run(*words[1:])
    assert {name: one.code for name, one in ended.items()} == dict.fromkeys(ended, 0) | {"fork": 3}
    assert "1 succeeded" in ended["worker"].out
    assert "receipt-17-in-a-fork" in ended["fork"].out


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", read(page)) if "://" not in link]
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    known = set(typer.main.get_command(build()).commands)  # type: ignore[attr-defined]
    used = set(re.findall(r"(?<!from )rewindq (?:--log \S+ )?([a-z]+)(?= |`|\n)", read(page)))
    assert used <= known, used - known


def test_the_picture_loads_nothing_and_shows_no_path_of_a_machine() -> None:
    picture = read("docs/demo.svg")
    assert set(re.findall(r"https?://[^\"\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "/tmp/" not in picture and "/home/" not in picture and "/root/" not in picture
