"""Names of topics, groups and branches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindq.engine.core.names import BadName, Topics, branch_name, valid_job_id

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_namespaces = st.from_regex(r"[a-zA-Z0-9._-]{1,160}", fullmatch=True).filter(
    lambda name: name not in (".", "..") and "branch" not in name.split(".")
)
_branches = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True).filter(lambda name: name != "main")


def test_names_of_a_namespace() -> None:
    topics = Topics("shop")
    assert vars(topics) == {
        "namespace": "shop",
        "jobs": "shop.jobs",
        "commands": "shop.commands",
        "lifecycle": "shop.lifecycle",
        "domain": "shop.domain",
        "snapshots": "shop.snapshots",
        "clock": "shop.clock",
        "investigation": "shop.investigation",
        "branches": "shop.branches",
        "worker_group": "shop.worker",
    }
    assert topics.branch_lifecycle("fix-1") == "shop.branch.fix-1.lifecycle"
    assert topics.branch_domain("fix-1") == "shop.branch.fix-1.domain"
    assert topics.branch_group("fix-1") == "shop.branch.fix-1"


@given(_namespaces, _branches)
def test_every_name_is_legal_in_kafka(namespace: str, branch: str) -> None:
    topics = Topics(namespace)
    names = [*vars(topics).values(), topics.branch_lifecycle(branch), topics.branch_domain(branch)]
    assert all(_LEGAL_TOPIC.fullmatch(name) for name in names)


def test_longest_names_are_legal_in_kafka() -> None:
    longest = Topics("n" * 160).branch_lifecycle("b" * 63)
    assert _LEGAL_TOPIC.fullmatch(longest)


@given(st.lists(st.tuples(_namespaces, _branches), min_size=2, max_size=2, unique=True))
def test_no_two_owners_share_a_topic(owners: list[tuple[str, str]]) -> None:
    """Not two namespaces, not two branches, not a namespace and the branch of another."""
    names = []
    for namespace, branch in owners:
        topics = Topics(namespace)
        own = set(vars(topics).values()) - {namespace}
        group = topics.branch_group(branch)
        names.append((own, {group, topics.branch_lifecycle(branch), topics.branch_domain(branch)}))
    (first, first_branch), (second, second_branch) = names
    assert not first_branch & second_branch
    assert not first & second_branch
    assert not second & first_branch
    assert first == second or not first & second


def test_a_namespace_cannot_pose_as_a_branch() -> None:
    assert Topics("shop").branch_lifecycle("x") == "shop.branch.x" + ".lifecycle"
    with pytest.raises(BadName, match="'branch'"):
        Topics("shop.branch.x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "a\0", "n" * 161, "../x"])
def test_illegal_namespaces_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(BadName) as refused:
        Topics(name)
    assert repr(name) in str(refused.value)
    assert "1 to 160" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", "main", "-a", "A", "a_b", "a.b", "..", "a/b", "a b", "ä", "a\n", "b" * 64, "lifecycle.x"]
)
def test_illegal_branches_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(BadName) as refused:
        branch_name(name)
    assert repr(name) in str(refused.value)
    assert "1 to 63" in str(refused.value)
    with pytest.raises(BadName):
        Topics("shop").branch_domain(name)


@pytest.mark.parametrize(
    ("job_id", "valid"),
    [
        ("a", True),
        ("Auftrag 7 / ß", True),
        ("x" * 200, True),
        ("", False),
        ("x" * 201, False),
        ("a\x00b", False),
        ("a\nb", False),
        ("\ud800", False),
        ("a\u200fb", False),
    ],
)
def test_job_ids(job_id: str, valid: bool) -> None:
    assert valid_job_id(job_id) is valid
