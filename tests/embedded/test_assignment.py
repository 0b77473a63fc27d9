"""Assignment: always balanced in the end, moving as little as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.log import assignment

MEMBERS = st.integers(1, 6).map(lambda count: [f"m{i}" for i in range(count)])


@given(members=MEMBERS, partitions=st.integers(1, 16), data=st.data())
def test_any_start_and_order_of_acting_ends_balanced(members: list[str], partitions: int, data: st.DataObject) -> None:
    owned = st.dictionaries(st.integers(0, partitions - 1), st.sampled_from(members))
    owners = data.draw(owned)
    before = dict(owners)
    for _ in range(3):
        for member in data.draw(st.permutations(members)):
            share = assignment.share(member, members, owners, partitions)
            assert not (share.surplus and share.wanted)
            for partition in share.surplus:
                del owners[partition]
            owners.update(dict.fromkeys(share.wanted, member))
    sizes = [list(owners.values()).count(member) for member in members]
    assert len(owners) == partitions and max(sizes) - min(sizes) <= 1
    moved = [partition for partition, owner in before.items() if owners[partition] != owner]
    held = [list(before.values()).count(member) for member in members]
    assert len(moved) <= sum(max(0, count - partitions // len(members)) for count in held)
    for member in members:
        assert assignment.share(member, members, owners, partitions) == ([], [])
