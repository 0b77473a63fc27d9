"""A member's place in a group of a memory log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ports.log import AppendRefused, Fenced, Turn
from .. import assignment, refusals
from ..fetching import Mark
from ..membership import Change, compare
from .state import Group, MemoryState


class MemorySeat:
    """The coordinator's side of a member (see `membership.Seat`)."""

    def __init__(self, state: MemoryState, group: str, name: str, partitions: int) -> None:
        self.member_id = state.member_id(name)
        self._state = state
        self._name = group
        self._partitions = partitions
        self._version = -1
        with state.changed:
            self._enter(self._group())
            state.tell()

    def stale(self, mark: Mark) -> bool:
        """Whether the group changed since the last `sync`. Being asked is this member's sign of life."""
        with self._state.changed:
            group = self._group()
            if self.member_id in group.members and not self._overdue(group):
                group.members[self.member_id] = self._state.deadline()
            self._state.bury(group)
            return group.version != self._version

    def sync(self, owned: Mapping[int, int]) -> Change:
        """Compares leases with `owned`, takes free ones up to this member's share."""
        with self._state.changed:
            group = self._group()
            self._state.bury(group)
            if self.member_id not in group.members:
                self._enter(group)
            held = {p: lease[1] for p, lease in group.leases.items() if lease[0] == self.member_id}
            owners = {p: lease[0] for p, lease in group.leases.items()}
            share = assignment.share(self.member_id, list(group.members), owners, self._partitions)
            taken = self._take(group, share.wanted)
            self._version = group.version
        return compare(owned, held, share.surplus, taken)

    def expired(self) -> bool:
        """Never: the coordinator is always there to be asked."""
        return False

    def release(self, partitions: Iterable[int]) -> None:
        """Gives leases back."""
        with self._state.changed:
            group = self._group()
            for partition in partitions:
                if group.leases.get(partition, ("", 0))[0] == self.member_id:
                    del group.leases[partition]
            group.version += 1
            self._state.tell()

    def commit(self, turn: Turn, generations: Mapping[int, int]) -> list[int]:
        """Checks the leases, appends and sets the offsets, at once."""
        state = self._state
        state.faults.before_commit(self.member_id, turn.appends)
        with state.changed:
            group = self._group()
            gone = sorted(p for p, g in generations.items() if group.leases.get(p) != (self.member_id, g))
            if gone:
                raise Fenced(
                    f"member {self.member_id} of group {self._name} no longer owns partitions {gone}: "
                    "nothing was appended; poll to learn what is owned"
                )
            for topic, partition in turn.offsets:
                if partition >= len(state.topics.get(topic, ())):
                    raise AppendRefused(f"nothing was committed: {refusals.no_such(topic, partition)}")
            offsets = state.append(turn.appends)
            group.offsets.update(turn.offsets)
            state.tell()
        state.faults.after_commit(self.member_id, turn.appends)
        return offsets

    def leave(self) -> None:
        """Ends the membership and gives all leases back."""
        with self._state.changed:
            if self._name in self._state.groups:
                self._group().remove(self.member_id)
            self._state.tell()

    def _group(self) -> Group:
        return self._state.groups.setdefault(self._name, Group())

    def _overdue(self, group: Group) -> bool:
        return self._state.clock is not None and group.members[self.member_id] < self._state.clock()

    def _enter(self, group: Group) -> None:
        group.members[self.member_id] = self._state.deadline()
        group.version += 1

    def _take(self, group: Group, wanted: list[int]) -> dict[int, int]:
        if wanted:
            group.generation += 1
            group.version += 1
            group.leases.update(dict.fromkeys(wanted, (self.member_id, group.generation)))
            self._state.tell()
        return dict.fromkeys(wanted, group.generation)
