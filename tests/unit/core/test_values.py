"""Canonical values: exact round trips, one encoding, refusals with a path."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.values import identical, json_values
from tests.support.values import values as any_values

from rewindq.engine.core import values
from rewindq.engine.core.values import DEPTH_MAX, ValueRefused


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    ONE = "one"


class Odd(Enum):
    PAIR = (1, 2)


class Point(NamedTuple):
    x: int
    y: int


class Money(Decimal):
    pass


class Fine(datetime):
    """Knows more than the microseconds that its base class prints, as pandas' Timestamp does."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fine)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0


def nested(levels: int, innermost: Any = 1) -> Any:
    value = innermost
    for at in range(levels):
        value = [value] if at % 2 else {"a": value}
    return value


@given(any_values)
@example({"$": {"$": {"$decimal": "1"}}})
@example({"$decimal": "1.10"})
@example({"$decimal": Decimal("1.10")})
@example([{"$": 1}, {"$x": 1, "y": 2}, "$5", '"$'])
@example(-0.0)
@example(5e-324)
@example([2**63, -(2**63) - 1, 2**64, 10**300, 9223371823962989837])
@example([0.1 + 0.2, 1e308, 16777217.0, 1e22, 1e16, 123456789012345680.0])
@example([Decimal("1.10"), Decimal("1.1"), Decimal("-0"), Decimal("1E+2"), Decimal("1E-40")])
@example([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))])
@example([timedelta.min, timedelta.max, timedelta(microseconds=-1)])
@example("\0\x7f\u2028\ufeff\u200f\uffff😀\r\n")
def test_what_is_encoded_is_decoded_with_equal_types(value: Any) -> None:
    data = values.encode(value)
    assert identical(values.decode(data), value)
    assert values.encode(values.decode(data)) == data


@given(any_values)
def test_bytes_are_strict_json_in_canonical_form(value: Any) -> None:
    data = values.encode(value)
    read = values.parse_json(data)
    again = json.dumps(read, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again.encode() == data


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), min_size=2))
def test_order_of_insertion_does_not_matter(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert values.encode(value) == values.encode(turned)
    assert list(json.loads(values.encode(value))) == sorted(value)


@given(json_values)
def test_the_quick_way_and_the_walk_write_the_same_bytes(value: Any) -> None:
    """A decimal beside the value sends it through the walk."""
    walked = values.encode([value, Decimal(0)])
    assert walked == b"[" + values.encode(value) + b',{"$decimal":"0"}]'


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"null"),
        (True, b"true"),
        (1.0, b"1.0"),
        (-0.0, b"-0.0"),
        (1e16, b"1e+16"),
        ("Zoë\n\x01/\x7f", '"Zoë\\n\\u0001/\x7f"'.encode()),
        ({"b": [1, 2], "a": {}}, b'{"a":{},"b":[1,2]}'),
        ({"\uffff": 1, "😀": 2}, '{"\uffff":1,"😀":2}'.encode()),
        (Decimal("1.10"), b'{"$decimal":"1.10"}'),
        (b"\x00\xff", b'{"$bytes":"AP8="}'),
        (date(2026, 11, 29), b'{"$date":"2026-11-29"}'),
        (time(12, 0, 0, 1), b'{"$time":"12:00:00.000001"}'),
        (timedelta(seconds=1.5), b'{"$timedelta":1500000}'),
        (UUID(int=1), b'{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), b'{"$datetime":"2026-01-02T03:00:00+00:00"}'),
        ({"$": 1}, b'{"$":{"$":1}}'),
        ({"$ref": 1}, b'{"$":{"$ref":1}}'),
        ({"$ref": 1, "b": 2}, b'{"$ref":1,"b":2}'),
    ],
)
def test_written_form(value: Any, data: bytes) -> None:
    """Fixed for ever: digests of recorded requests depend on it."""
    assert values.encode(value) == data


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Word.ONE, "one"),
        ({Word.ONE: Level.HIGH}, {"one": 3}),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Money("1.10"), Decimal("1.10")),
    ],
)
def test_what_is_read_back_as_its_base(value: Any, read: Any) -> None:
    assert identical(values.decode(values.encode(value)), read)
    assert not isinstance(values.plain(value), tuple)


def test_named_zones_keep_their_instant_and_offset() -> None:
    """Also in the doubled hour, where the offset tells which of the two it is."""
    zone = ZoneInfo("Europe/Berlin")
    for fold, offset in ((0, 2), (1, 1)):
        at = datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=fold)
        read = values.decode(values.encode(at))
        assert read.utcoffset() == timedelta(hours=offset)
        assert read.astimezone(UTC) == at.astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (float("nan"), "", "nan is not a finite number"),
        ({"a": [1, float("inf")]}, "/a/1", "inf is not a finite"),
        ({"a": [Decimal(1), float("-inf")]}, "/a/1", "-inf is not a finite"),
        ([Decimal("NaN")], "/0", "NaN is not a finite"),
        ([Decimal("sNaN")], "/0", "sNaN is not a finite"),
        ([Decimal("-Infinity")], "/0", "-Infinity is not a finite"),
        ({"when": datetime(2026, 1, 1)}, "/when", "no time zone"),
        ([time(1, tzinfo=ZoneInfo("Europe/Berlin"))], "/0", "no fixed offset"),
        ({"a/b~c": ["ok", "\ud800x"]}, "/a~1b~0c/1", "character 0 of the text is a lone surrogate"),
        ({"n": {"x\udfff": 1}}, "/n", "character 1 of the text is a lone surrogate"),
        ({1: 2}, "", "key 1 is not text"),
        ({"a": {None: 2}}, "/a", "key None is not text"),
        ({"a": {True: 2}}, "/a", "key True is not text"),
        ({"a": {b"x": 2}}, "/a", "key b'x' is not text"),
        ({"a": object()}, "/a", "builtins.object is not a type that can be recorded"),
        ([bytearray(b"x")], "/0", "bytearray is not a type"),
        ([1 + 2j], "/0", "complex is not a type"),
        ({"s": {1, 2}}, "/s", "a set has no order; give a sorted list"),
        ([frozenset()], "/0", "a frozenset has no order"),
        ([Odd.PAIR], "/0", "Enum whose value is not of a JSON type"),
        ([10**5000], "/0", "too many digits"),
        ({"t": Fine(2026, 1, 1, tzinfo=UTC)}, "/t", "finer than the microseconds"),
        (nested(DEPTH_MAX + 1), "/a/0" * 32, "nested over 64 levels"),
        (nested(DEPTH_MAX + 1, []), "/a/0" * 32, "nested over 64 levels"),
        (nested(5000), "/0/a" * 32, "nested over 64 levels"),
    ],
)
def test_refusals_name_path_and_reason(value: Any, path: str, why: str) -> None:
    for function in (values.encode, values.plain, values.encode_plain):
        with pytest.raises(ValueRefused) as refused:
            function(value)
        assert refused.value.path == path
        assert why in refused.value.reason
        assert str(refused.value) == f"{path or 'the value'}: {refused.value.reason}"


def test_cycles_are_refused_at_once() -> None:
    cycle: list[Any] = []
    cycle.extend([cycle, cycle])
    with pytest.raises(ValueRefused, match="nested over 64 levels"):
        values.encode(cycle)


def test_deepest_nesting_is_kept() -> None:
    for value in (nested(DEPTH_MAX), nested(DEPTH_MAX, Decimal("1.1"))):
        assert identical(values.decode(values.encode(value)), value)


def test_keys_that_read_alike_are_refused() -> None:
    class Other(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return 7

    with pytest.raises(ValueRefused, match="two keys are 'a'"):
        values.encode({"a": 1, Other("a"): 2})


def test_long_ints_are_the_same_under_a_lower_digit_limit() -> None:
    number = 10**4000
    data = values.encode([number, Decimal(1)])
    assert values.decode(data) == [number, Decimal(1)]
    assert data == values.encode([number])[:-1] + b',{"$decimal":"1"}]'
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(ValueRefused, match="too many digits"):
            values.encode([number])
        assert values.encode(10**639) == b"1" + b"0" * 639
    finally:
        sys.set_int_max_str_digits(limit)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    try:
        values.decode(data)
    except ValueRefused as error:
        assert f"these {len(data)} bytes" in error.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b"1e400",
        b"[1,]",
        b'"\xff"',
        b'"\\ud800"',
        b"\xff\xfe",
        b"[" * 10000 + b"]" * 10000,
        b'{"$":' * 10000 + b"1" + b"}" * 10000,
    ],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueRefused, match="no value in canonical JSON"):
        values.decode(data)


@pytest.mark.parametrize(
    "text",
    [
        '{"$ref":"#/a"}',
        '{"$decimal":"abc"}',
        '{"$decimal":"NaN"}',
        '{"$decimal":" 1"}',
        '{"$decimal":1}',
        '{"$decimal":{"$decimal":[]}}',
        '{"$datetime":"2026-01-01"}',
        '{"$datetime":"2026-01-01T00:00:00"}',
        '{"$date":"20260101"}',
        '{"$time":"1"}',
        '{"$timedelta":true}',
        '{"$timedelta":1.5}',
        '{"$timedelta":1000000000000000000000000000000}',
        '{"$uuid":"x"}',
        '{"$bytes":"A"}',
        '{"$bytes":"AP8=\\n"}',
        '{"$":1}',
        '{"$":{"a":1}}',
        '{"$":{"$a":1,"b":2}}',
        '{"a":{"$x":{"$y":null}}}',
    ],
)
def test_foreign_json_that_is_no_tag_is_itself(text: str) -> None:
    """Other programs' payloads must neither fail nor change their meaning."""
    assert identical(values.decode(text.encode()), json.loads(text))
    assert identical(values.decode(values.encode(json.loads(text))), json.loads(text))


@given(json_values)
def test_decode_takes_any_json(value: Any) -> None:
    read = values.decode(json.dumps(value).encode())
    assert identical(values.decode(values.encode(read)), read)


def test_digest_is_sha256() -> None:
    assert values.digest(b"x") == "sha256:" + sha256(b"x").hexdigest()


def holds_bytes(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(holds_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)


@given(any_values)
def test_plain_is_json_and_keeps_json(value: Any) -> None:
    shown = values.plain(value)
    if holds_bytes(value):
        with pytest.raises(ValueRefused, match="JSON has no bytes"):
            values.encode_plain(value)
        return
    assert values.encode_plain(value) == values.encode_plain(shown)
    assert identical(json.loads(values.encode_plain(value)), json.loads(json.dumps(shown)))


@given(json_values)
def test_plain_leaves_json_alone(value: Any) -> None:
    assert identical(values.plain(value), value)
    assert identical(json.loads(values.encode_plain(value)), value)


def test_plain_forms() -> None:
    at = datetime(2026, 11, 29, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert values.plain(
        {
            "b": b"\x00\xff",
            "a": [Decimal("1.10"), at, date(2026, 1, 2), time(3), UUID(int=1), Color.RED, (1,)],
        }
    ) == {
        "b": "AP8=",
        "a": [
            "1.10",
            "2026-11-29T12:00:00.000001Z",
            "2026-01-02",
            "03:00:00",
            "00000000-0000-0000-0000-000000000001",
            "red",
            [1],
        ],
    }
    assert values.plain({"$ref": 1}) == {"$ref": 1}
    assert values.encode_plain({"$ref": 1}) == b'{"$ref":1}'
    edge = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))
    assert values.plain(edge) == "0001-01-01T00:00:00+01:00"


@given(st.timedeltas())
@example(timedelta(0))
@example(timedelta(days=-1, microseconds=1))
@example(timedelta(days=3, seconds=4, microseconds=500_000))
def test_models_read_plain_durations_back(value: timedelta) -> None:
    adapter = TypeAdapter(timedelta)
    assert adapter.validate_python(values.plain(value)) == value
    assert adapter.validate_json(values.encode_plain(value)) == value
