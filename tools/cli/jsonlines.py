"""Files of JSON lines, one submission a line, read as a stream with progress on stderr."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rewindq.engine.core import values
from rewindq.engine.runtime.submitting import SubmissionRefused

#: A line that has "payload" and only these keys gives the submission's fields, too.
_FIELDS = frozenset({"payload", "key", "id", "delay", "priority"})
#: Longest line read: far above any payload, so that a file without line ends is refused and not swallowed.
LINE_BYTES_MAX = 64 * 1024 * 1024


class LineRefused(Exception):
    """A line cannot be submitted. The message begins with its number."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")


class Line(NamedTuple):
    """A line's payload, and the fields of the submission that it gives itself."""

    number: int
    payload: Mapping[str, Any]
    fields: Mapping[str, Any]


def read_lines(file: Path | None, stdin: IO[bytes], console: Console) -> Iterator[Line]:
    """A file's lines (None: standard input's), blank ones left out. Raises LineRefused, OSError."""
    if file is None:
        yield from _lines(stdin)
        return
    with file.open("rb") as stream, _progress(console) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size or None)
        for line in _lines(stream):
            if line.number % 500 == 0:
                progress.update(task, completed=stream.tell())
            yield line


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _lines(stream: IO[bytes]) -> Iterator[Line]:
    number = 0
    while raw := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX:
            raise LineRefused(number, f"is longer than {LINE_BYTES_MAX} bytes")
        if raw.strip():
            yield _line(number, raw)


def _line(number: int, raw: bytes) -> Line:
    try:
        value = values.parse_json(raw.strip())
    except values.JsonRefused as error:
        raise LineRefused(number, f"column {error.column}: {error.reason}") from error
    if not isinstance(value, dict):
        raise LineRefused(number, f"is no JSON object but {type(value).__name__}")
    if "payload" not in value or not value.keys() <= _FIELDS:
        return Line(number, value, {})
    payload = value.pop("payload")
    if not isinstance(payload, dict):
        raise LineRefused(number, f"its payload is no JSON object but {type(payload).__name__}")
    return Line(number, payload, value)


class _Fields(dict[str, Any]):
    """A payload's fields for a template: plain texts and whole numbers only, as in an app's own rules."""

    def __init__(self, option: str, payload: Mapping[str, Any]) -> None:
        super().__init__()
        self._option, self._payload = option, payload

    def __missing__(self, name: str) -> str:
        value = self._payload.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            found = "missing" if name not in self._payload else f"{value!r}"
            raise SubmissionRefused(f"{self._option}: field {name!r} must be a text or whole number, it is {found}")
        return str(value)


def template(option: str, text: str | None, payload: Mapping[str, Any]) -> str | None:
    """A text with each `{field}` replaced by that field of the payload. Raises SubmissionRefused naming the option."""
    if text is None or ("{" not in text and "}" not in text):
        return text
    try:
        for _, field, spec, conversion in string.Formatter().parse(text):
            if field is not None and (spec or conversion or not field.replace("-", "_").isidentifier()):
                raise SubmissionRefused(f"{option} {text!r}: {{{field}}} must be a plain field's name")
        return text.format_map(_Fields(option, payload))
    except SubmissionRefused:
        raise
    except ValueError as error:
        raise SubmissionRefused(f"{option} {text!r} is no template: {error}; write {{{{ for a brace") from error
