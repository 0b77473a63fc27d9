"""Branches: their registry, and what belongs to each: two topics, a consumer group, a folder with its overlay."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core import events as e
from ..core.names import branch_name
from ..core.position import Position
from ..core.times import format_time
from ..ports.log import Append, TopicSpec
from ..runtime.deployment import Deployment
from .recording import NoRecording

_POLL = 500


class NoBranch(NoRecording):
    """There is no such branch; names those that there are."""


class BranchExists(Exception):
    """A branch of this name exists already."""


class Branch(NamedTuple):
    """A branch as the registry knows it; `ended` None: its run did not come to its end."""

    name: str
    job_id: str
    attempt: int
    code_version: str | None
    created_us: int
    born: e.BranchCreated
    ended: e.BranchEnded | None

    def same_run(self, other: Branch) -> bool:
        """Whether both tell of one run: two processes may have asked for one name at once."""
        return (self.born, self.created_us) == (other.born, other.created_us)

    @property
    def base(self) -> Position:
        """The first event that it does not share with its parent."""
        return Position(self.born.base_partition, self.born.base_seq)

    @property
    def topics(self) -> tuple[str, str]:
        """Its own topics."""
        return self.born.lifecycle, self.born.domain

    @property
    def status(self) -> str:
        """`complete`, `running`, or `incomplete` when the process that ran it is gone."""
        if self.ended is not None:
            return "complete"
        here = self.born.host == socket.gethostname()
        return "incomplete" if here and not Path(f"/proc/{self.born.pid}").exists() else "running"

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "parent": self.born.parent,
            "base": str(self.base),
            "mode": self.born.mode,
            "origin": {"job_id": self.job_id, "attempt": self.attempt},
            "topics": list(self.topics),
            "group": self.born.group,
            "status": self.status,
            "outcome": None if self.ended is None else self.ended.outcome,
            "events": 0 if self.ended is None else self.ended.events,
            "divergences": 0 if self.ended is None else self.ended.divergences,
            "app": self.born.app,
            "code_version": self.code_version,
            "created": format_time(self.created_us),
        }


def list_branches(deployment: Deployment) -> list[Branch]:
    """The branches of the namespace, oldest first."""
    topic = deployment.topics.branches
    if topic not in deployment.log.topics(topic):
        return []
    found: dict[bytes, Branch] = {}
    low, end = deployment.log.bounds(topic, 0)
    reader = deployment.log.reader({(topic, 0): low})
    try:
        while reader.position(topic, 0) < end:
            for record in reader.poll(_POLL, 1.0):
                key = record.key or b""
                if record.value is None:
                    found.pop(key, None)
                    continue
                branch = _branch(deployment.codec.decode(record.value))
                # A name belongs to whoever registered it first: what others registered meanwhile counts for nothing.
                if key not in found or found[key].same_run(branch):
                    found[key] = branch
    finally:
        reader.close()
    return sorted(found.values(), key=lambda branch: (branch.created_us, branch.name))


def _branch(record: e.EventRecord) -> Branch:
    born, *rest = (event.body for event in record.events)
    assert isinstance(born, e.BranchCreated)
    ended = rest[0] if rest and isinstance(rest[0], e.BranchEnded) else None
    name, job_id = record.branch or "", record.job_id or ""
    return Branch(name, job_id, record.attempt, record.code_version, record.timestamp, born, ended)


def find_branch(deployment: Deployment, name: str) -> Branch:
    """Raises NoBranch naming the branches that there are."""
    known = list_branches(deployment)
    for branch in known:
        if branch.name == name:
            return branch
    there = ", ".join(branch.name for branch in known) or "none"
    raise NoBranch(f"no branch {name!r} in namespace {deployment.settings.namespace!r} (there are: {there})")


def branch_stem(job_id: str) -> str:
    """What the names of a job's branches begin with."""
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in job_id.lower())
    return f"fork-{letters.strip('-')[-40:].strip('-') or 'job'}"


def free_name(deployment: Deployment, job_id: str) -> str:
    """A name for a branch of a job that no branch has."""
    taken = {branch.name for branch in list_branches(deployment)}
    stem = branch_stem(job_id)
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)


def create(deployment: Deployment, branch: Branch, offsets: dict[tuple[str, int], int]) -> None:
    """Registers a branch and makes what belongs to it. Raises BranchExists, BadName.

    The registry comes first, so that whatever a crash leaves behind is found there and can be deleted. Its order
    decides between several that ask for one name at once.
    """
    branch_name(branch.name)
    _refuse_known(deployment, branch)
    deployment.ensure_topics()
    register(deployment, branch)
    _refuse_known(deployment, branch)
    deployment.log.create_topics([TopicSpec(topic, 1) for topic in branch.topics])
    deployment.log.set_offsets(branch.born.group, offsets)
    folder(deployment, branch.name).mkdir(parents=True, exist_ok=True)


def _refuse_known(deployment: Deployment, branch: Branch) -> None:
    holder = next((known for known in list_branches(deployment) if known.name == branch.name), None)
    if holder is None or holder.same_run(branch):
        return
    if holder.ended is not None:
        # Its entry may stand before ours: a registry that keeps the newest of a name only must keep this one.
        register(deployment, holder)
    raise BranchExists(f"there is a branch {branch.name!r} already: give another --name, or delete it first")


def register(deployment: Deployment, branch: Branch) -> None:
    """Appends what the registry is to know of a branch."""
    bodies: Sequence[e.Body] = [branch.born] if branch.ended is None else [branch.born, branch.ended]
    record = e.EventRecord(
        e.UNNUMBERED,
        0,
        branch.created_us,
        0,
        f"replay-{branch.born.pid}",
        branch.job_id,
        branch.attempt,
        tuple(e.Event(body) for body in bodies),
        branch=branch.name,
        code_version=branch.code_version,
    )
    _append(deployment, branch.name, deployment.codec.encode(record))


def _append(deployment: Deployment, name: str, value: bytes | None) -> None:
    now = deployment.clock.now_us() // 1000
    producer = deployment.log.producer()
    try:
        producer.append([Append(deployment.topics.branches, 0, name.encode(), value, now)])
    finally:
        producer.close()


def delete(deployment: Deployment, name: str) -> Branch:
    """Deletes a branch's topics, group and folder, and then its entry. Raises NoBranch, GroupActive."""
    branch = find_branch(deployment, name)
    if branch.status == "running" and branch.born.pid != os.getpid():
        raise BranchExists(
            f"branch {name!r} is being run by process {branch.born.pid} on {branch.born.host}: "
            "end it first, then delete the branch"
        )
    deployment.log.delete_group(branch.born.group)
    deployment.log.delete_topics(branch.topics)
    place = folder(deployment, name)
    if place.exists():
        shutil.rmtree(place)
    _append(deployment, name, None)
    return branch


def folder(deployment: Deployment, name: str) -> Path:
    """The folder that holds a branch's overlay."""
    return deployment.branch_folder(branch_name(name))


def overlay_path(deployment: Deployment, name: str) -> Path:
    """The folder of the overlay of the one partition that a branch of one job has."""
    return folder(deployment, name) / "p0"


def standing(deployment: Deployment, branch: Branch) -> dict[str, Any]:
    """Where a branch stands: its topics' bounds and its group's offsets."""
    known = deployment.log.topics(branch.born.group)
    bounds = {topic: deployment.log.bounds(topic, 0) for topic in branch.topics if topic in known}
    groups = [group for group in deployment.log.groups(branch.born.group) if group.name == branch.born.group]
    offsets = {f"{topic}/{number}": offset for group in groups for (topic, number), offset in group.offsets.items()}
    return {
        "topics": {topic: {"low": low, "end": end} for topic, (low, end) in bounds.items()},
        "offsets": offsets,
        "folder": str(folder(deployment, branch.name)),
    }


def records(deployment: Deployment, branch: Branch) -> list[e.EventRecord]:
    """A branch's own numbered records, in order."""
    found: list[e.EventRecord] = []
    for topic in branch.topics:
        low, end = deployment.log.bounds(topic, 0)
        reader = deployment.log.reader({(topic, 0): low})
        try:
            while reader.position(topic, 0) < end:
                found.extend(deployment.codec.decode(record.value) for record in reader.poll(_POLL, 1.0))
        finally:
            reader.close()
    return sorted((record for record in found if record.seq >= 0), key=lambda record: record.seq)
