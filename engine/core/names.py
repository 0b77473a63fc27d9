"""Names of topics, groups and branches. Pure.

Kafka's rule for topics (249 of `a-z A-Z 0-9 . _ -`) is kept by every name that a legal namespace and a legal
branch name make up, so that a namespace of the embedded log can move to Kafka. Both are folder names too.
"""

from __future__ import annotations

import re

_NAMESPACE = re.compile(r"[a-zA-Z0-9._-]{1,160}")
_BRANCH = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
#: The production branch's name, for people.
MAIN = "main"


class BadName(ValueError):
    """A namespace or branch name breaks its rule; the message has the name and the rule."""


class Topics:
    """The topic and group names of a namespace.

    Raises BadName when the namespace is not 1 to 160 of `a-z A-Z 0-9 . _ -`, or has a part `branch` between
    its dots: its topics could be those of another namespace's branch.
    """

    def __init__(self, namespace: str) -> None:
        if not _NAMESPACE.fullmatch(namespace) or namespace in (".", ".."):
            raise BadName(f"namespace {namespace!r} must be 1 to 160 of a-z, A-Z, 0-9, '.', '_' and '-'")
        if "branch" in namespace.split("."):
            raise BadName(f"namespace {namespace!r} must have no part named 'branch' between its dots")
        self.namespace = namespace
        self.jobs = f"{namespace}.jobs"
        self.commands = f"{namespace}.commands"
        self.lifecycle = f"{namespace}.lifecycle"
        self.domain = f"{namespace}.domain"
        self.snapshots = f"{namespace}.snapshots"
        self.investigation = f"{namespace}.investigation"
        self.clock = f"{namespace}.clock"
        self.branches = f"{namespace}.branches"
        self.worker_group = f"{namespace}.worker"

    def branch_lifecycle(self, branch: str) -> str:
        """A branch's lifecycle topic. Raises BadName."""
        return f"{self.branch_group(branch)}.lifecycle"

    def branch_domain(self, branch: str) -> str:
        """A branch's domain topic. Raises BadName."""
        return f"{self.branch_group(branch)}.domain"

    def branch_group(self, branch: str) -> str:
        """A branch's consumer group. Raises BadName."""
        return f"{self.namespace}.branch.{branch_name(branch)}"


def branch_name(name: str) -> str:
    """The name, if it may name a branch. Raises BadName."""
    if not _BRANCH.fullmatch(name) or name == MAIN:
        rule = f"1 to 63 of a-z, 0-9 and '-', begin with a letter or digit, and not be {MAIN!r}"
        raise BadName(f"branch {name!r} must be {rule}")
    return name


def valid_job_id(job_id: str) -> bool:
    """Ids are printable, without NUL, up to 200 characters."""
    return 0 < len(job_id) <= 200 and job_id.isprintable()
