"""Draws a real run of the demo as an SVG: `python -m rewindq.tools.demo.picture docs/demo.svg`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from .orders import sample
from .place import Place
from .story import Story
from .telling import Teller

_WIDTH = 108


def draw(folder: Path, orders: int = 300) -> str:
    """Runs the demo in a folder and returns what it printed, as an SVG. Raises CommandFailed, NothingFound."""
    console = Console(record=True, width=_WIDTH, quiet=False, file=sys.stderr, force_terminal=True)
    Story(Place(folder), sample(orders), Teller(console)).run()
    return _plain(console.export_svg(title="rewindq demo"))


def _plain(svg: str) -> str:
    """Without fonts from elsewhere: a picture in a README must not load anything."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> int:
    """Draws to the file that the command line names."""
    if len(sys.argv) != 2:
        print("usage: python -m rewindq.tools.demo.picture FILE.svg", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="rewindq-demo-") as folder:
        svg = draw(Path(folder) / "demo")
    Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
