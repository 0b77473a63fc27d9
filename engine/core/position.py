"""Positions: a place in a partition's numbering of events, printed and accepted as `p<partition>@<seq>`."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"p(0|[1-9][0-9]{0,9})@(0|[1-9][0-9]{0,18})")
_PARTITION_MAX = 2**31 - 1
_SEQ_MAX = 2**63 - 1


class BadPosition(ValueError):
    """A text is no position; the message says what is expected."""


class Position(NamedTuple):
    """Behind or at event `seq` of a partition. They sort by partition, then seq.

    Only positions of one partition are earlier and later than each other; between partitions the order is for
    listing.
    """

    partition: int
    seq: int

    def __str__(self) -> str:
        return f"p{self.partition}@{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that `str` printed. Raises BadPosition."""
        match = _FORM.fullmatch(text)
        position = cls(int(match[1]), int(match[2])) if match is not None else None
        if position is None or position.partition > _PARTITION_MAX or position.seq > _SEQ_MAX:
            raise BadPosition(f"{text!r} is no position: write p<partition>@<seq>, for example p3@1842")
        return position
