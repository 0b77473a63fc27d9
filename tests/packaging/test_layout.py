"""What is shipped, what may import what, and that files and functions stay short enough to be read."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewindq.engine.core.events import BODIES
from rewindq.schemas import catalog

ROOT = Path(__file__).parents[2]
CODE = ("engine", "schemas", "processors", "tools")
FILE_LINES = 400
FUNCTION_LINES = 60
#: Longer than the rule when it was made. They may shrink; nothing joins them.
LONG_FILES = {
    "tests/unit/replay/test_dry_run.py": 420,
}


def tracked() -> list[Path]:
    """The checkout's files as they are: tracked, or new and not ignored."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    return [ROOT / name for name in found if name and (ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.parts[len(ROOT.parts)] in (*CODE, "tests")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel as it would be published, built from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    package = [path for path in (ROOT / ".package" / "rewindq").iterdir() if path.name != "__pycache__"]
    for path in [*tracked(), *package]:
        copy = folder / "checkout" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() and not copy.is_symlink():
            shutil.copy2(path, copy, follow_symlinks=False)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*build, "--wheel-dir", folder, folder / "checkout"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    with zipfile.ZipFile(made) as opened:
        yield opened


def test_the_wheel_installs_one_package_and_no_generic_name(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"rewindq"}
    inside = {name.split("/")[1] for name in wheel.namelist() if name.startswith("rewindq/")}
    assert inside == {"__init__.py", "py.typed", *CODE}


def test_the_wheel_holds_every_module_and_all_data(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    modules = {
        f"rewindq/{path.relative_to(ROOT)}"
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in CODE and path.relative_to(ROOT).parts[:2] != ("engine", "public")
    }

    assert modules <= names
    assert not {name for name in names if "test" in name.lower() or name.startswith("rewindq/engine/public")}
    schemas = {f"rewindq/schemas/avro/{path.name}" for path in (ROOT / "schemas" / "avro").iterdir()}
    assert schemas <= names
    assert len(schemas) >= len(BODIES) + 3


def test_every_event_type_has_a_schema_in_the_current_release() -> None:
    assert set(BODIES) <= set(catalog.releases()[catalog.current_release()])


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of somebody's machine", r"(?<![\w.:/])/(?:work|home|Users|root)/[\w.-]+"),
        (
            "a package registry's host",
            r"\b(?:pypi\.org|pythonhosted\.org|repo1?\.maven\.(?:apache\.)?org|registry\.npmjs\.org|proxy\.golang\.org)\b",
        ),
        ("a private network's address", r"\b(?:10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2})\b"),
        ("a private key", r"BEGIN (?:[A-Z]+ )?PRIVATE KEY"),
    ],
)
def test_nothing_of_a_machine_is_in_the_checkout(what: str, pattern: str) -> None:
    searched = re.compile(pattern)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in tracked()
        if path != Path(__file__) and (text := _text(path)) is not None
        for number, line in enumerate(text.splitlines(), 1)
        if (match := searched.search(line))
    ]

    assert found == [], f"{what} is in {len(found)} lines"


def _text(path: Path) -> str | None:
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", "replace")


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    long = {name: count for name, count in lengths.items() if count > LONG_FILES.get(name, FILE_LINES)}

    assert long == {}
    assert LONG_FILES.keys() <= lengths.keys(), "a file that is gone stands in LONG_FILES"


def test_functions_are_short() -> None:
    long = {}
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = length

    assert long == {}
