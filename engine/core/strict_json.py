"""JSON that people and other programs hand in, read strictly.

RFC 8259 in UTF-8, and beyond its grammar refused: a key that stands twice in an object, NaN and Infinity,
numbers too large for a float or of more digits than it keeps (nor an int of more than Python reads), lone surrogates,
nesting over 64 levels. Every refusal has line and column. Numbers with a fraction or an exponent become floats, all
others ints of their exact value. Nothing is read into the value: a `$decimal` in the text is a plain key
(`values.decode` reads what `values.encode` wrote).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from .refused import DEPTH_MAX, JsonRefused

_PART = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


class _Suspect(Exception):
    """The text breaks a rule that the parser does not place; `_problems` finds the place."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises JsonRefused."""
    text = _characters(text)
    if text.startswith("\ufeff"):
        raise JsonRefused(1, 1, "a byte order mark (BOM) stands before the JSON; save the text without one")
    try:
        value = _DECODER.decode(text)
        if _too_deep(value, 1) or ("\\u" in text and _has_surrogate(value)):
            raise _Suspect("nested too deep, or a lone surrogate")
    except json.JSONDecodeError as error:
        raise JsonRefused(error.lineno, error.colno, error.msg) from error
    except (_Suspect, ValueError, RecursionError) as error:
        raise next(_problems(text), JsonRefused(1, 1, str(error))) from error
    return value


def _characters(text: str | bytes) -> str:
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        raise _at(before, len(before), f"byte {error.start} is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise _at(error.object, error.start, "a lone surrogate is no character") from error
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Suspect("a key stands twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Suspect("a number is too large")
    if not _kept(digits, number):
        raise _Suspect("a number has more digits than a float keeps")
    return number


def _kept(digits: str, number: float) -> bool:
    """Whether the float that was read is the number that was written: `1.10` is, forty digits are not."""
    try:
        return Decimal(digits) == Decimal(repr(number))
    except InvalidOperation:  # an exponent beyond all bounds
        return False


def _no_constant(name: str) -> NoReturn:
    raise _Suspect(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)


def _too_deep(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    if depth > DEPTH_MAX:
        return True
    return any(_too_deep(item, depth + 1) for item in (value.values() if kind is dict else value))


def _has_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _problems(text: str) -> Iterator[JsonRefused]:
    """What is refused in a text that is grammatical up to there, in the order of the text."""
    open_objects: list[set[str] | None] = []
    key_next = False
    for match in _PART.finditer(text):
        part, at = match[0], match.start()
        if part in ("{", "["):
            open_objects.append(set() if part == "{" else None)
            key_next = part == "{"
            if len(open_objects) > DEPTH_MAX:
                yield _at(text, at, f"nested over {DEPTH_MAX} levels")
        elif part in ("}", "]"):
            open_objects.pop()
        elif part == ",":
            key_next = bool(open_objects) and open_objects[-1] is not None
        elif part == ":":
            key_next = False
        elif (reason := _refusal(part, open_objects[-1] if key_next else None)) is not None:
            yield _at(text, at, reason)


def _refusal(part: str, keys: set[str] | None) -> str | None:
    """Why a string or literal is refused; `keys` are those before it where it is a key of an object."""
    if part[0] == '"':
        string = json.loads(part)
        if any("\ud800" <= letter <= "\udfff" for letter in string):
            return "a lone surrogate is no character"
        if keys is not None and string in keys:
            return f"the key {string!r} stands twice in one object"
        if keys is not None:
            keys.add(string)
        return None
    if part in ("NaN", "Infinity", "-Infinity"):
        return f"{part} is no JSON number"
    if part in ("true", "false", "null"):
        return None
    return _number_refusal(part)


def _number_refusal(part: str) -> str | None:
    shown = part if len(part) <= 20 else f"{part[:20]}…"
    try:
        number = float(part) if re.search("[.eE]", part) else int(part)
    except ValueError:
        return f"{shown} has too many digits ({len(part)})"
    if isinstance(number, int):
        return None
    if math.isinf(number):
        return f"{shown} is too large for a float"
    return None if _kept(part, number) else f"{shown} has more digits than a float keeps; write it as text"


def _at(text: str, position: int, reason: str) -> JsonRefused:
    line = text.count("\n", 0, position) + 1
    return JsonRefused(line, position - text.rfind("\n", 0, position), reason)
