"""Random writes, branches and reopenings: memory and RocksDB against a model that reads by brute force."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tests.support.hypothesis_profile  # noqa: F401 - puts the profile in force
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support.stores import Model

from rewindq.engine.ports.store import Delete, Family, Put, Store
from rewindq.engine.store.content import PLAIN, VERSIONED
from rewindq.engine.store.memory import MemoryStore
from rewindq.engine.store.opener import open_overlay, open_store

# Few bytes and short keys, so that they collide, contain each other and hold what escaping uses.
KEYS = st.lists(st.sampled_from([b"\x00", b"\x01", b"a", b"\xfe", b"\xff"]), max_size=3).map(b"".join)
SEQS = st.one_of(st.integers(0, 8), st.sampled_from([2**63, 2**64 - 1]))
BOUNDS = st.one_of(SEQS, st.just(-1), st.just(2**65))
VALUES = st.binary(max_size=3)
PLAINS, VERSIONEDS = st.sampled_from(PLAIN), st.sampled_from(VERSIONED)
CHANGES = st.lists(
    st.one_of(
        st.builds(Put, PLAINS, KEYS, VALUES, st.none()),
        st.builds(Put, VERSIONEDS, KEYS, VALUES, SEQS),
        st.builds(Delete, PLAINS, KEYS, st.none()),
        st.builds(Delete, VERSIONEDS, KEYS, SEQS),
    ),
    max_size=8,
)


@dataclass
class Node:
    model: Model
    memory: Store
    rocks: Store
    path: str
    parent: Node | None = None

    @property
    def stores(self) -> tuple[Store, Store]:
        return self.memory, self.rocks


class StoresAgree(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rewindq-test-"))
        path = str(self.folder / "0")
        self.nodes = [Node(Model(), MemoryStore(), open_store(path, branch="", partition=0), path)]

    def node(self, pick: int) -> Node:
        return self.nodes[pick % len(self.nodes)]

    @rule(pick=st.integers(0, 9), changes=CHANGES)
    def write(self, pick: int, changes: list[Put | Delete]) -> None:
        node = self.node(pick)
        node.model.write(changes)
        for store in node.stores:
            store.write(changes)

    @rule(pick=st.integers(0, 9), seq=SEQS)
    def branch(self, pick: int, seq: int) -> None:
        if len(self.nodes) < 4:
            base, path = self.node(pick), str(self.folder / str(len(self.nodes)))
            memory, rocks = (store.branch(path, seq) for store in base.stores)
            self.nodes.append(Node(Model(base.model, seq), memory, rocks, path, base))

    @rule()
    def reopen(self) -> None:
        for node in self.nodes:
            node.rocks.close()
        for node in self.nodes:
            if node.parent is None:
                node.rocks = open_store(node.path, branch="", partition=0)
            else:
                node.rocks = open_overlay(node.path, node.parent.rocks, node.model.seq)

    @rule(pick=st.integers(0, 9), family=VERSIONEDS, key=KEYS, first=BOUNDS, last=BOUNDS)
    def read_versions(self, pick: int, family: Family, key: bytes, first: int, last: int) -> None:
        node = self.node(pick)
        want = node.model.history(family, key, first, last)
        for store in node.stores:
            assert store.at(family, key, last) == node.model.at(family, key, last)
            assert list(store.history(family, key, first=first, last=last)) == want
            assert list(store.history(family, key, first=first, last=last, reverse=True)) == want[::-1]

    @rule(pick=st.integers(0, 9), family=VERSIONEDS, prefix=KEYS, seq=BOUNDS)
    def read_view(self, pick: int, family: Family, prefix: bytes, seq: int) -> None:
        node = self.node(pick)
        for store in node.stores:
            assert list(store.keys(family, prefix)) == node.model.keys(family, prefix)
            assert list(store.view(seq).keys(family, prefix)) == node.model.keys(family, prefix, seq)
            assert store.view(seq).latest(family, prefix) == node.model.at(family, prefix, seq)

    @rule(pick=st.integers(0, 9), family=PLAINS, prefix=KEYS, start=KEYS, limit=st.integers(0, 5))
    def read_plain(self, pick: int, family: Family, prefix: bytes, start: bytes, limit: int) -> None:
        node = self.node(pick)
        want = node.model.scan(family, prefix, start)
        for store in node.stores:
            assert list(store.scan(family, prefix, start=start)) == want
            assert list(store.scan(family, prefix, start=start, limit=limit)) == want[:limit]
            assert store.get(family, prefix) == node.model.plain(family).get(prefix)

    def check_all(self, node: Node) -> None:
        assert node.memory.digest() == node.rocks.digest()
        for store in node.stores:
            for family in PLAIN:
                assert list(store.scan(family)) == node.model.scan(family)
            for family in VERSIONED:
                assert list(store.keys(family)) == node.model.keys(family)
                for key in node.model.keys(family):
                    assert store.latest(family, key) == node.model.at(family, key)
                    assert list(store.history(family, key)) == node.model.history(family, key)

    def teardown(self) -> None:
        if not hasattr(self, "nodes"):
            return
        try:
            for node in self.nodes:
                self.check_all(node)
        finally:
            for node in self.nodes:
                node.rocks.close()
            shutil.rmtree(self.folder)


StoresAgree.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
TestStoresAgree = StoresAgree.TestCase
