"""How the demo speaks: numbered steps with the command that the reader can type, short tables, checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .audit import Check

_INDENT = (0, 0, 0, 3)
#: Longer lines of prose are hard to read.
_PROSE_WIDTH = 100


class Teller:
    """Tells the story on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = 0

    def title(self, text: str) -> None:
        """The story's first line."""
        self._console.print(Text(text, style="bold"))

    def step(self, title: str, command: str | None = None) -> None:
        """Begins a step; `command` is what a person would type."""
        self._step += 1
        self._console.print()
        self._console.print(Text(f"{self._step}. {title}", style="bold cyan"))
        if command is not None:
            self._console.print(Text(f"   $ {command}", style="green"), soft_wrap=True)

    def say(self, text: str) -> None:
        """A sentence or two."""
        self._console.print(Padding(Text(text), _INDENT, expand=False), width=min(self._console.width, _PROSE_WIDTH))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> None:
        """A table; `numbers` are the columns aligned to the right."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index in numbers else "left", no_wrap=index in numbers)
        for row in rows:
            table.add_row(*(Text("" if value is None else str(value)) for value in row))
        self._console.print(Padding(table, _INDENT, expand=False))

    def checks(self, checks: Iterable[Check]) -> None:
        """What held, and what did not."""
        for check in checks:
            mark, style = ("ok", "green") if check.ok else ("NO", "bold red")
            self._console.print(Text.assemble("   ", (mark, style), f"  {check.name}: {check.detail}"))

    def failed(self, reason: str) -> None:
        """The story cannot go on."""
        self._console.print(Text(f"   {reason}", style="bold red"))
