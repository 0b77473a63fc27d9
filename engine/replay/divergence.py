"""Where code leaves its recording: matching steps by name, and the divergences that this finds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .recording import Step


class Divergence(msgspec.Struct, frozen=True):
    """One difference. `step` is without its `#n`, which is `occurrence`; `index` counts recorded steps from 0."""

    kind: str
    step: str | None
    occurrence: int
    expected: Any
    got: Any
    index: int

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return msgspec.structs.asdict(self)


class Matcher:
    """Matches the steps that code asks for with recorded ones, by name and occurrence, never by order alone.

    `tell` is called with each divergence when it is found.
    """

    def __init__(self, steps: Sequence[Step], tell: Callable[[Divergence], None] | None = None) -> None:
        self._steps = list(steps)
        self._by_name = {step.name: step for step in steps}
        self._asked: dict[str, Step] = {}
        self._tell = tell
        self._unordered = False
        self.divergences: list[Divergence] = []

    def knows(self, name: str) -> bool:
        """Whether the step was recorded."""
        return name in self._by_name

    def take(self, name: str) -> Step | None:
        """The recorded step that the code asks for now, None when there is none of that name."""
        step = self._by_name.get(name)
        if step is not None:
            self._asked.setdefault(name, step)
        return step

    @property
    def next(self) -> Step | None:
        """The first recorded step that was not asked for yet."""
        return next((step for step in self._steps if step.name not in self._asked), None)

    def concurrent(self) -> None:
        """The code runs steps side by side: their order says nothing."""
        self._unordered = True

    @property
    def unordered(self) -> bool:
        """Whether the code was seen to run steps side by side."""
        return self._unordered

    def found(self, kind: str, name: str | None, expected: Any, got: Any, index: int | None = None) -> None:
        """Lists a divergence."""
        base, occurrence = split_step(name or "")
        if index is None:
            index = self._place(name)
        divergence = Divergence(kind, base or None, occurrence, expected, got, index)
        self.divergences.append(divergence)
        if self._tell is not None:
            self._tell(divergence)

    def unrecorded(self, name: str, got: dict[str, Any]) -> None:
        """The code asked for a step that is not in the recording."""
        expected = self.next
        self.found("unrecorded_step", name, None if expected is None else expected.describe(), got)

    def _place(self, name: str | None) -> int:
        """The recorded step itself, else the one that is next; the handler's end stands behind all."""
        if name is not None and name in self._by_name:
            return self._by_name[name].index
        return len(self._steps) if name is None or self.next is None else self.next.index

    def finish(self) -> None:
        """Lists recorded steps that were never asked for, and those that were asked for in another order."""
        for step in self._steps:
            if step.name not in self._asked:
                self.found("missing_step", step.name, step.describe(), None)
        if not self._unordered:
            self._check_order()

    def _check_order(self) -> None:
        asked = list(self._asked.values())
        recorded = sorted(asked, key=lambda step: step.index)
        stayed = _longest_rising([step.index for step in asked])
        for at, step in enumerate(asked):
            if step.index not in stayed:
                before, after = recorded.index(step), at
                self.found(
                    "order_differs",
                    step.name,
                    {"after": recorded[before - 1].name if before else None},
                    {"after": asked[after - 1].name if after else None},
                )


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """The numbers of a longest rising subsequence: what kept its order."""
    tails: list[int] = []
    chains: list[tuple[int, ...]] = []
    for number in numbers:
        at = bisect_left(tails, number)
        chain = (*chains[at - 1], number) if at else (number,)
        if at == len(tails):
            tails.append(number)
            chains.append(chain)
        else:
            tails[at], chains[at] = number, chain
    return set(chains[-1]) if chains else set()


def split_step(name: str) -> tuple[str, int]:
    """A step's name without its occurrence, and the occurrence."""
    base, mark, number = name.rpartition("#")
    return (base, int(number)) if mark and number.isdecimal() else (name, 1)
