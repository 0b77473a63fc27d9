"""Positions as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.position import BadPosition, Position


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_what_is_printed_is_read_back(partition: int, seq: int) -> None:
    position = Position(partition, seq)
    assert str(position) == f"p{partition}@{seq}"
    assert Position.parse(str(position)) == position


def test_order_is_by_partition_then_seq() -> None:
    assert sorted([Position(1, 0), Position(0, 10), Position(0, 9)]) == [
        Position(0, 9),
        Position(0, 10),
        Position(1, 0),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3@1842",
        "p3",
        "p3@",
        "p@1",
        "P3@1",
        "p3@-1",
        "p-1@1",
        "p3@1.0",
        " p3@1",
        "p3@1\n",
        "p03@1",
        "p3@01",
        "p3@1e3",
        "p٣@1",
        "p2147483648@1",
        "p3@9223372036854775808",
        "p3@1@2",
        "p+3@1",
        "latest",
    ],
)
def test_anything_else_is_refused_and_told_the_form(text: str) -> None:
    with pytest.raises(BadPosition) as refused:
        Position.parse(text)
    assert repr(text) in str(refused.value)
    assert "p<partition>@<seq>" in str(refused.value)
