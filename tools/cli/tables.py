"""Tables and texts for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Longest text shown of one field among others, in characters; `--json` has all of it.
FIELD_MAX = 160
#: Longest JSON shown of a payload, a result or a state, in characters: some are hundreds of megabytes.
VALUE_MAX = 20_000
_STATUS_STYLES = {
    "succeeded": "green",
    "success": "green",
    "investigation": "red",
    "fail": "red",
    "failed": "red",
    "lost": "red",
    "cancelled": "yellow",
    "retrying": "yellow",
    "skipped": "yellow",
    "running": "cyan",
}


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, wide: int = -1) -> None:
    """A compact table without borders; only column `wide` may be broken into several lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        last = number == (wide if wide >= 0 else len(headings) + wide)
        table.add_column(heading, overflow="fold", no_wrap=not last)
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console.print(table)


def print_value(console: Console, value: Any) -> None:
    """A value as JSON; a long one is cut, which is said."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) <= VALUE_MAX:
        console.print_json(text)
        return
    console.print(text[:VALUE_MAX], markup=False, highlight=False)
    console.print(f"… cut here: it has {len(text)} characters in all; --json shows them", markup=False)


def cell(value: Any) -> Text:
    """A value as a table shows it; statuses have their colour."""
    text = "" if value is None else str(value)
    return Text(text, style=_STATUS_STYLES.get(text, ""))


def short_time(text: str | None) -> str:
    """An RFC 3339 time without its date's separators and microseconds: `11-29 15:02:51.660`."""
    return text if is_odd_time(text) else f"{text[5:10]} {text[11:23]}" if text else ""


def is_odd_time(text: str | None) -> TypeGuard[str]:
    """Whether a time is none of the calendar's and has no parts to show."""
    return text is not None and text.endswith("us")


def short(text: str, limit: int) -> str:
    """A text cut to `limit` characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
