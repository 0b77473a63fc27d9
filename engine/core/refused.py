"""Refusals of values and of JSON text: where, and why."""

from __future__ import annotations

#: Deepest nesting of lists and dicts: far above what people write, far below any parser's recursion limit.
DEPTH_MAX = 64


class ValueRefused(ValueError):
    """A value cannot be recorded. `path` is a JSON pointer (`/items/0/price`; empty: the value itself)."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'the value'}: {reason}")
        self.path = path
        self.reason = reason


class JsonRefused(ValueRefused):
    """Text is not the strict JSON that is accepted. `line` and `column` count from 1, in characters."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"line {line} column {column}", reason)
        self.line = line
        self.column = column
