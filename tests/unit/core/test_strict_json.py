"""Strict JSON for what people and other programs hand in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.values import identical, json_values

from rewindq.engine.core.values import DEPTH_MAX, JsonRefused, ValueRefused, check_json, parse_json


@given(json_values, st.booleans(), st.sampled_from([None, 0, 2]))
def test_json_is_read_exactly(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert identical(parse_json(text), value)
    assert identical(parse_json(text.encode()), value)


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("", 1, 1, "Expecting value"),
        ("{'a': 1}", 1, 2, "Expecting property name"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', 3, 2, "the key 'a' stands twice in one object"),
        ('{"a": {"x": 1, "\\u0078": 2}}', 1, 16, "the key 'x' stands twice"),
        ('[{"a": 1}, {"a": 1}, {"b": [1, {"c": 1, "c": 2}]}]', 1, 41, "the key 'c' stands twice"),
        ('{"a": ["a", "a"], "b": "a", "a": 0}', 1, 29, "the key 'a' stands twice"),
        ('{"a":\n  NaN}', 2, 3, "NaN is no JSON number"),
        ("[Infinity]", 1, 2, "Infinity is no JSON number"),
        ('["NaN", -Infinity]', 1, 9, "-Infinity is no JSON number"),
        ("[1.5, 1e400]", 1, 7, "1e400 is too large for a float"),
        ("[-1E+999]", 1, 2, "-1E+999 is too large for a float"),
        ("[1.10, 12345678901234567890.1234]", 1, 8, "12345678901234567890… has more digits than a float keeps"),
        ("[0.5, 1e-400]", 1, 7, "1e-400 has more digits than a float keeps; write it as text"),
        ("[1e-99999999999999999999]", 1, 2, "more digits than a float keeps"),
        ("[1, " + "9" * 5000 + "]", 1, 5, "too many digits (5000)"),
        ('["ok",\n"\\ud800"]', 2, 1, "a lone surrogate"),
        ('{"\\udc00": 1}', 1, 2, "a lone surrogate"),
        ('["\\ud800\\u0061"]', 1, 2, "a lone surrogate"),
        ('["a\ud800"]', 1, 4, "a lone surrogate"),
        ("[" * 65 + "]" * 65, 1, 65, "nested over 64 levels"),
        ('{"a":\n' * 65 + "1" + "}" * 65, 65, 1, "nested over 64 levels"),
        ("[" * 10_000 + "]" * 10_000, 1, 65, "nested over 64 levels"),
        ("[1] 2", 1, 5, "Extra data"),
        ("\ufeff[1]", 1, 1, "BOM"),
        ("[01]", 1, 3, "Expecting ',' delimiter"),
        ('["a\nb"]', 1, 4, "Invalid control character"),
        (b'["ok",\n "\xff"]', 2, 3, "byte 9 is not UTF-8"),
        ('["ä"]'.encode("utf-16"), 1, 1, "byte 0 is not UTF-8"),
    ],
)
def test_refusals_have_line_column_and_reason(text: str | bytes, line: int, column: int, why: str) -> None:
    with pytest.raises(JsonRefused) as refused:
        parse_json(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert why in refused.value.reason
    assert str(refused.value).startswith(f"line {line} column {column}: ")
    assert isinstance(refused.value, ValueRefused)


def test_surrogate_pairs_are_characters() -> None:
    assert parse_json('["\\ud83d\\ude00", "\\\\ud800"]') == ["😀", "\\ud800"]


def test_deepest_nesting_is_read() -> None:
    parse_json("[" * DEPTH_MAX + "]" * DEPTH_MAX)


def test_tags_are_plain_keys() -> None:
    assert parse_json('{"$decimal": "1.1"}') == {"$decimal": "1.1"}


@given(st.text(alphabet='{}[]",:1e9.-NaInf\\ud80 \n"a', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """With the standard parser as a model: what it refuses is refused, what is read equals its reading."""
    try:
        value = parse_json(text)
    except JsonRefused as error:
        assert error.line >= 1
        assert error.column >= 1
        return
    assert identical(value, json.loads(text))


@given(
    st.one_of(
        json_values.map(lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))),
        st.text(alphabet='{}[]",:1e9.-NaInf\\ud80 \n"a', max_size=40),
    )
)
@example("[" * DEPTH_MAX + "]" * DEPTH_MAX)
@example("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))
@example('{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1))
@example("[" + "[]," * DEPTH_MAX + "{}]")
@example('{"a":1,"a":1}')
@example("[1e400]")
@example("[" + "9" * 5000 + "]")
@example(str(10**30))
@example('"\\ud800"')
def test_bytes_are_checked_as_they_are_read(text: str) -> None:
    """The check knows a short way for what stands in canonical form; what the reader refuses is not let through."""
    data = text.encode()
    try:
        parse_json(data)
    except JsonRefused as error:
        with pytest.raises(JsonRefused) as refused:
            check_json(data)
        assert str(refused.value) == str(error)
    else:
        check_json(data)
