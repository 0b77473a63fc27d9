"""Which member of a group should own which partitions: balanced, sticky, the same answer for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Share(NamedTuple):
    """What one member has to do: hand `surplus` over, or take `wanted` (free) partitions. Never both."""

    surplus: list[int]
    wanted: list[int]


def quotas(members: Sequence[str], owners: Mapping[int, str], partitions: int) -> dict[str, int]:
    """How many partitions each member should own: floor or ceil of the average.

    Who owns most already gets the larger share, then who joined first, so that as little as possible moves.
    """
    owned = dict.fromkeys(members, 0)
    for owner in owners.values():
        owned[owner] += 1
    floor, larger = divmod(partitions, len(members))
    order = sorted(members, key=lambda member: -owned[member])  # stable: join order decides between equals
    return {member: floor + (rank < larger) for rank, member in enumerate(order)}


def share(member: str, members: Sequence[str], owners: Mapping[int, str], partitions: int) -> Share:
    """The share of `member`, given all members in join order and each owned partition's owner."""
    quota = quotas(members, owners, partitions)[member]
    owned = sorted(partition for partition, owner in owners.items() if owner == member)
    if len(owned) > quota:
        return Share(surplus=owned[quota:], wanted=[])
    free = [partition for partition in range(partitions) if partition not in owners]
    return Share(surplus=[], wanted=free[: quota - len(owned)])
