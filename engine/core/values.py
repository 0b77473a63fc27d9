"""Canonical values: one encoding in bytes for whatever a payload, result, answer or aggregate field may hold.

The encoding is JSON in UTF-8 without spaces; keys stand in the order of their code points, and nothing is
escaped that JSON lets stand. JSON's own types are themselves: None, bool, int (exact, up to the 4300 digits
that Python prints), finite float (shortest form that reads back, `-0.0` kept), str, list and dict with text
keys. Other types become an object with one key:

    {"$decimal": "1.10"}      {"$date": "2026-11-29"}       {"$timedelta": 1500000}    (microseconds)
    {"$bytes": "AP8="}        {"$time": "12:00:00"}         {"$uuid": "6ba7b810-…"}
    {"$datetime": "2026-11-29T12:00:00.000001+02:00"}       (aware; the offset is kept, no zone name)

A dict whose only key begins with `$` is wrapped as `{"$": …}`, so `decode(encode(v)) == v` with equal types,
always. Three things are read back as what they are written as: a tuple as a list, an Enum as its value (of a
JSON type), an instance of a subclass as its base. Refused, with the path: NaN and infinities, naive
datetimes, lone surrogates, keys that are not text, any other type, nesting over 64 levels.
"""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from .refused import DEPTH_MAX, JsonRefused, ValueRefused
from .strict_json import parse_json

__all__ = [
    "DEPTH_MAX",
    "JsonRefused",
    "ValueRefused",
    "check_json",
    "decode",
    "digest",
    "encode",
    "encode_plain",
    "parse_json",
    "plain",
]

_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode
_from_json = msgspec.json.decode
#: Only to see whether bytes are what was read of them; where it writes a number in another form, they are read again.
_again = msgspec.json.Encoder(order="sorted").encode
_LEAVES = frozenset({str, int, bool, float, type(None)})
_MICROSECOND = timedelta(microseconds=1)
#: Ints below this many bits have under 640 digits, which Python prints under any setting.
_SHORT_INT_BITS = 2048
#: Writes a leaf that is not of a JSON type: (value, path) -> JSON value.
_Leaf: TypeAlias = Callable[[Any, str], Any]
_Written = TypeVar("_Written")


def encode(value: Any) -> bytes:
    """The value's canonical bytes. Raises ValueRefused."""
    return _quick(value) or _to_json(_walk(value, "", 1, _tagged, escape=True)).encode()


def encode_plain(value: Any) -> bytes:
    """`plain(value)` as canonical JSON without tags, for readers that know the types. Raises ValueRefused.

    Bytes are refused: JSON has none, and a model that reads text into bytes does not know of base64.
    """
    return _quick(value) or _to_json(_walk(value, "", 1, _readable, escape=False)).encode()


def decode(data: bytes) -> Any:
    """The value of canonical bytes. Raises ValueRefused when they are no JSON.

    Whatever is JSON has a value, since other programs write payloads too: an object that `encode` would not
    have written as a tag is the dict that it looks like.
    """
    try:
        value = _from_json(data)
        return _untagged(value) if b'"$' in data else value
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueRefused("", f"these {len(data)} bytes are no value in canonical JSON: {error}") from error


def check_json(data: bytes) -> None:
    """Raises JsonRefused unless bytes are strict JSON (`parse_json`), which every reader understands alike."""
    try:
        # What is in canonical form is seen at once: a key that stood twice would have been lost.
        if _again(_from_json(data)) == data and data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
            return
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass  # told with line and column by the strict parser
    parse_json(data)


def digest(data: bytes) -> str:
    """`sha256:<64 hex digits>` of canonical bytes; the form of a blob's reference too."""
    return "sha256:" + sha256(data).hexdigest()


def plain(value: Any) -> Any:
    """The value for display and for models, in JSON's types only. Raises ValueRefused.

    Decimals and UUIDs are text, bytes base64, datetimes RFC 3339 in UTC (`Z`), dates and times ISO 8601,
    timedeltas ISO 8601 durations, Enums their value; dicts keep their order.
    """
    return _walk(value, "", 1, _shown, escape=False)


def _quick(value: Any) -> bytes | None:
    """The bytes of a value that holds nothing but JSON's own types; None where a walk has to look at it."""
    if _is_json(value, 1):
        try:
            return _to_json(value).encode()
        except ValueError:
            return None  # a NaN, a lone surrogate, too many digits: the walk finds the path
    return None


def _is_json(value: Any, depth: int) -> bool:
    """Whether the value can be written as it stands: exact JSON types, text keys, no `$` key, not deep."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        if len(value) == 1 and key[:1] == "$":
            return False
        value = value.values()
    elif kind is not list:
        return kind in _LEAVES
    if depth > DEPTH_MAX:
        return False
    # Leaves are looked at here: a call for each would cost more than the encoding; so would a generator.
    for item in value:  # noqa: SIM110
        if type(item) not in _LEAVES and not _is_json(item, depth + 1):
            return False
    return True


def _walk(value: Any, path: str, depth: int, leaf: _Leaf, *, escape: bool) -> Any:
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value, path)
    if kind is int:
        return _whole(value, path)
    if kind in _EXACT:
        return leaf(value, path)
    if isinstance(value, _CONTAINERS):
        if depth > DEPTH_MAX:
            raise ValueRefused(path, f"nested over {DEPTH_MAX} levels")
        if isinstance(value, dict):
            return _walk_dict(value, path, depth, leaf, escape)
        return [_walk(item, f"{path}/{at}", depth + 1, leaf, escape=escape) for at, item in enumerate(value)]
    if isinstance(value, Enum):
        if not isinstance(value.value, str | int | float | None):
            raise ValueRefused(path, f"{value!r} is an Enum whose value is not of a JSON type")
        return _walk(value.value, path, depth, leaf, escape=escape)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _whole(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueRefused(path, f"{float(value)!r} is not a finite number")
        return float(value)
    return leaf(value, path)


def _walk_dict(value: dict[Any, Any], path: str, depth: int, leaf: _Leaf, escape: bool) -> dict[str, Any]:
    walked: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueRefused(path, f"the key {key!r} is not text")
        name = _text(key, path)
        if name in walked:
            raise ValueRefused(path, f"two keys are {name!r}")
        walked[name] = _walk(item, f"{path}/{_escaped(name)}", depth + 1, leaf, escape=escape)
    if escape and len(walked) == 1 and next(iter(walked)).startswith("$"):
        return {"$": walked}
    return walked


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueRefused(path, f"character {error.start} of the text is a lone surrogate") from error
    return str.__str__(value)


def _whole(value: int, path: str) -> int:
    value = operator.index(value)
    if value.bit_length() > _SHORT_INT_BITS:
        try:
            int.__repr__(value)
        except ValueError as error:
            raise ValueRefused(path, f"the number has too many digits ({value.bit_length()} bits)") from error
    return value


def _tagged(value: Any, path: str) -> dict[str, Any]:
    exact = _EXACT.get(type(value))
    if exact is not None:
        return {exact[0]: exact[1](value, path)}
    for kind, tag, write in _WRITERS:
        if isinstance(value, kind):
            return {tag: write(value, path)}
    raise _unknown(value, path)


def _readable(value: Any, path: str) -> Any:
    if isinstance(value, bytes):
        raise ValueRefused(path, "JSON has no bytes: give a model that says how it reads them, or base64 as text")
    return _shown(value, path)


def _shown(value: Any, path: str) -> Any:
    if isinstance(value, datetime):
        _write_datetime(value, path)
        try:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
        except OverflowError:  # an offset that leads out of the years 1 to 9999
            return value.isoformat()
    if isinstance(value, timedelta):
        return _iso_duration(value)
    return next(iter(_tagged(value, path).values()))


def _unknown(value: Any, path: str) -> ValueRefused:
    kind = type(value)
    if isinstance(value, set | frozenset):
        return ValueRefused(path, f"a {kind.__name__} has no order; give a sorted list")
    return ValueRefused(path, f"{kind.__module__}.{kind.__qualname__} is not a type that can be recorded")


def _write_decimal(value: Decimal, path: str) -> str:
    if not value.is_finite():
        raise ValueRefused(path, f"Decimal {value} is not a finite number")
    return Decimal.__str__(value)


def _write_datetime(value: datetime, path: str) -> str:
    if value.utcoffset() is None:
        raise ValueRefused(path, f"datetime {value.isoformat()} has no time zone; give it one")
    return _exact(value, datetime.isoformat(value), datetime.fromisoformat, path)


def _write_date(value: date, path: str) -> str:
    return _exact(value, date.isoformat(value), date.fromisoformat, path)


def _write_time(value: time, path: str) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueRefused(path, f"time {value.isoformat()} has no fixed offset; give a datetime instead")
    if value.tzinfo is None and value.fold:
        raise ValueRefused(path, f"time {value.isoformat()} is of the second pass of an hour; give a datetime instead")
    return _exact(value, time.isoformat(value), time.fromisoformat, path)


def _write_timedelta(value: timedelta, path: str) -> int:
    return _exact(value, value // _MICROSECOND, lambda us: timedelta(microseconds=us), path)


def _exact(value: Any, written: _Written, read: Callable[[_Written], Any], path: str) -> _Written:
    """What was written, unless a subclass knows more than its base can keep (nanoseconds, for example)."""
    if type(value) not in _EXACT and read(written) != value:
        raise ValueRefused(path, f"{type(value).__qualname__} {value} is finer than the microseconds kept")
    return written


#: (type, tag, writer) in the order in which they are tried: a datetime is a date too.
_WRITERS: tuple[tuple[type, str, _Leaf], ...] = (
    (Decimal, "$decimal", _write_decimal),
    (datetime, "$datetime", _write_datetime),
    (date, "$date", _write_date),
    (time, "$time", _write_time),
    (timedelta, "$timedelta", _write_timedelta),
    (UUID, "$uuid", lambda value, path: str(value)),
    (bytes, "$bytes", lambda value, path: base64.b64encode(value).decode()),
)
#: The same by exact type: most values need no search.
_EXACT: dict[type, tuple[str, _Leaf]] = {kind: (tag, write) for kind, tag, write in _WRITERS}
_CONTAINERS = (dict, list, tuple)
_READERS: dict[str, Callable[[Any], Any]] = {
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda us: timedelta(microseconds=us),
    "$uuid": UUID,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
}


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$" and isinstance(item, dict) and len(item) == 1 and next(iter(item))[:1] == "$":
            return {name: _untagged(inner) for name, inner in item.items()}
        if key in _READERS:
            return _read_tag(key, item)
    return {name: _untagged(item) for name, item in value.items()}


def _read_tag(tag: str, item: Any) -> Any:
    """The value of a tag, if `encode` would write that very tag for it; else the dict."""
    if type(item) is (int if tag == "$timedelta" else str):
        try:
            value = _READERS[tag](item)
            if _tagged(value, "") == {tag: item}:
                return value
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            pass  # not of our writing, see `decode`
    return {tag: _untagged(item)}


def _iso_duration(value: timedelta) -> str:
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    days, rest = divmod(size // _MICROSECOND, 86_400_000_000)
    seconds, micros = divmod(rest, 1_000_000)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{sign}P{f'{days}D' if days else ''}T{seconds}{fraction}S"
