"""Stored keys keep the order of what they encode, and never mix."""

from __future__ import annotations

import tests.support.hypothesis_profile  # noqa: F401 - puts the profile in force
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.store import keys

KEYS = st.one_of(
    st.binary(max_size=6), st.lists(st.sampled_from([b"\x00", b"\x01", b"\xff"]), max_size=5).map(b"".join)
)
SEQS = st.integers(0, keys.SEQ_MAX)


def test_the_stored_layout() -> None:
    assert keys.versioned(b"a\x00b", 258) == b"a\x00\xffb\x00\x01" + b"\x00\x00\x00\x00\x00\x00\x01\x02"


@given(KEYS, SEQS)
def test_it_can_be_read_back(key: bytes, seq: int) -> None:
    assert keys.split(keys.versioned(key, seq)) == (key, seq)
    assert keys.seq_of(keys.versioned(key, seq)) == seq


@given(st.tuples(KEYS, SEQS), st.tuples(KEYS, SEQS))
def test_order_is_kept(one: tuple[bytes, int], two: tuple[bytes, int]) -> None:
    assert (keys.versioned(*one) < keys.versioned(*two)) == (one < two)


@given(KEYS, SEQS, KEYS)
def test_versions_of_other_keys_never_start_alike(key: bytes, seq: int, other: bytes) -> None:
    assert keys.versioned(key, seq).startswith(keys.escape(other)) == (key == other)


@given(KEYS, SEQS, KEYS)
def test_prefixes_are_kept(key: bytes, seq: int, prefix: bytes) -> None:
    assert keys.versioned(key, seq).startswith(keys.escape_prefix(prefix)) == key.startswith(prefix)


@given(KEYS, SEQS, KEYS, SEQS)
def test_after_is_behind_this_key_alone(key: bytes, seq: int, other: bytes, other_seq: int) -> None:
    after = keys.after(keys.versioned(key, seq))
    assert (keys.versioned(other, other_seq) < after) == (other <= key)
