"""Draws a real run of the demo as an SVG: `python -m rewindq.tools.demo.picture docs/demo.svg`."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from .orders import sample
from .place import NotADemo, Place
from .running import CommandFailed
from .story import NothingFound, Story
from .telling import Teller

_WIDTH = 124
#: The part that is drawn: from the wrong balance to the totals.
_FIRST, _BEHIND = "Is everybody's account right?", "What to type next"


def draw(folder: Path, orders: int = 300) -> str:
    """Runs the demo in a folder and draws what it printed. Raises CommandFailed, NothingFound."""
    told = io.StringIO()
    console = Console(file=told, width=_WIDTH, force_terminal=True, color_system="truecolor", highlight=False)
    Story(Place(folder), sample(orders), Teller(console)).run()
    lines = Text.from_ansi(told.getvalue()).split()
    first = next(number for number, line in enumerate(lines) if _FIRST in line.plain)
    behind = next(number for number, line in enumerate(lines) if _BEHIND in line.plain)
    picture = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, highlight=False)
    for line in lines[first:behind]:
        picture.print(line, soft_wrap=True)
    return _plain(picture.export_svg(title="rewindq demo"))


def _plain(svg: str) -> str:
    """With the fonts that machines have: a picture in a README must not load anything."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: Fira Code, DejaVu Sans Mono, Menlo, monospace")
    return re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)


def main() -> int:
    """Draws to the file that the command line names."""
    if len(sys.argv) != 2:
        print("usage: python -m rewindq.tools.demo.picture FILE.svg", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="rewindq-demo-") as folder:
            svg = draw(Path(folder) / "demo")
        Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(sys.argv[1]).write_text(svg, encoding="utf-8")
    except (CommandFailed, NothingFound, NotADemo, OSError) as error:
        print(f"error: no picture: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
