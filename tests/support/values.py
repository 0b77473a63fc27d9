"""Strategies and comparisons for canonical values."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

_text = st.text(st.characters(exclude_categories=["Cs"]))
#: Keys that look like tags and escapes are as likely as others.
_keys = _text | st.sampled_from(["$", "$decimal", "$bytes", "$datetime", "$x", "a"])
offsets = st.integers(-24 * 3600 + 1, 24 * 3600 - 1).map(lambda seconds: timezone(timedelta(seconds=seconds)))
json_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text
)
leaves = (
    json_leaves
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=offsets)
    | st.dates()
    # Without an offset, the mark of a doubled hour has no form: refused, see tests/cases/test_zones_of_machines.py.
    | st.times().map(lambda at: at.replace(fold=0))
    | st.times(timezones=offsets)
    | st.timedeltas()
    | st.uuids()
    | st.binary(max_size=40)
)


def containers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and dicts of such values, to some depth."""
    return st.recursive(
        of,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_keys, inner, max_size=4),
        max_leaves=12,
    )


json_values = containers(json_leaves)
values = containers(leaves)


def identical(a: Any, b: Any) -> bool:
    """Equal, of equal types all the way down, and printed alike where `==` is not enough (-0.0, 1.10)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, datetime) and a.utcoffset() != b.utcoffset():
        return False
    return bool(a == b) and str(a) == str(b)
