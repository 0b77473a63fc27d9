"""Text of jobs on a terminal: what would steer the terminal, or show other text than there is, is made visible.

Job ids, steps, messages and payloads come from anywhere. Printed as it is, an escape sequence in one could recolour,
overwrite or retitle an operator's terminal, and a change of direction could hide what a line says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

#: Controls but for tab and line feed, changes of direction, and what some programs take for the end of a line.
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PICTURES = 0x2400
_OTHER = "\ufffd"


def visible(text: str) -> str:
    """The text, each such character by the picture of its name (`␛`), or by a replacement mark where it has none."""
    return _STEERS.sub(lambda found: _picture(found[0]), text)


def _picture(letter: str) -> str:
    if letter == "\x7f":
        return "\u2421"
    return chr(_PICTURES + ord(letter)) if letter < " " else _OTHER


def escaped(document: str) -> str:
    """A JSON document in which such characters are written as escapes, so that a reader gets them as they were."""
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


class VisibleConsole(Console):
    """Rich's console; what it is given to print is made visible, its own styles stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's own."""
        for segment in super().render(renderable, options):
            if segment.control is None and _STEERS.search(segment.text):
                segment = segment._replace(text=visible(segment.text))
            yield segment
